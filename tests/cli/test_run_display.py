"""What `run` shows while it works."""

import io

from rich.console import Console
from rich.progress import Progress

from domainadaptor.cli.terminal import bar_columns
from domainadaptor.lab.experiments.runner import Runner
from tests.cli.test_run import OWN, arguments, base  # noqa: F401  (a fixture)

SWEPT = """
title = "Swept"
[networks.mine]
checkpoint = "none/{target}.safetensors"
[rows."Mixed, as asked"]
method = "adamixbn"
[[table]]
title = "One"
dataset = "folders"
network = "mine"
domains = ["night"]
sweep = { option = "alpha", values = [0.3, 0.7] }
"""


def test_a_narrow_bar_still_says_how_much_is_done_and_everything_that_runs():
    console = Console(file=io.StringIO(), width=80)
    progress = Progress(*bar_columns(), console=console, expand=True)
    said = "comparison: DomainAdaptor-Aug, rate 0.05 on art_painting+cartoon+sketch, testbed, seed 0: 3929 images"
    progress.update(progress.add_task("", total=240), completed=37, description=said)
    console.print(progress.get_renderable())
    shown = console.file.getvalue()
    assert "37/240" in shown
    assert all(word in shown.split() for word in said.split())


def test_a_cell_is_called_by_its_row_and_its_swept_value(program, base):  # noqa: F811
    (base / "experiments" / "small.toml").write_text(SWEPT)
    result = program(*arguments(base, *OWN))
    assert "[1/2] small: Mixed, as asked, alpha 0.3 on night: " in result.stderr
    assert "[2/2] small: Mixed, as asked, alpha 0.7 on night: " in result.stderr


def test_an_interrupted_run_shows_the_table_so_far(program, base, monkeypatch):  # noqa: F811
    measure = Runner.run
    begun = []

    def interrupted(self, cell, *more):
        begun.append(cell)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return measure(self, cell, *more)

    monkeypatch.setattr(Runner, "run", interrupted)
    result = program(*arguments(base, *OWN))
    assert result.returncode == 130
    rows = {
        line.split("│")[1].strip(): line.split("│")[2].strip() for line in result.stdout.splitlines() if "│" in line
    }
    assert rows["untouched"].replace(".", "").isdigit()
    assert rows["AdaBN"] == ""

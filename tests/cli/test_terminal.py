"""What commands share."""

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from domainadaptor.cli.terminal import bar_columns, count, print_text


def test_a_narrow_bar_still_says_how_much_is_done_and_everything_that_runs():
    console = Console(file=io.StringIO(), width=80)
    progress = Progress(*bar_columns(), console=console, expand=True)
    said = "comparison: DomainAdaptor-Aug, rate 0.05 on art_painting+cartoon+sketch, testbed, seed 0: 3929 images"
    progress.update(progress.add_task("", total=240), completed=37, description=said)
    console.print(progress.get_renderable())
    shown = console.file.getvalue()
    assert "37/240" in shown
    assert all(word in shown.split() for word in said.split())


def test_text_breaks_between_words_on_a_terminal_alone():
    text = (
        "the weights drifted by 0.021 of their size\n\n  /a/path/that/is/longer/than/a/line/of/this/terminal.json [x]"
    )
    shown = {}
    for terminal in (True, False):
        console = Console(file=io.StringIO(), width=20, force_terminal=terminal, color_system=None)
        print_text(text, console)
        shown[terminal] = console.file.getvalue()
    assert shown[False] == text + "\n"
    lines = shown[True].splitlines()
    assert lines[:4] == ["the weights drifted", "by 0.021 of their", "size", ""]
    assert "/a/path/that/is/longer/than/a/line/of/this/terminal.json" in [line.strip() for line in lines]
    assert " ".join(shown[True].split()) == " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((1, "image"), "1 image"),
        ((0, "run"), "0 runs"),
        ((2, "class", "classes"), "2 classes"),
        ((1200, "file"), "1,200 files"),
    ],
)
def test_what_is_counted_has_its_plural(words, expected):
    assert count(*words) == expected

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import domainadaptor
from domainadaptor import registry
from domainadaptor.errors import BadOption


def test_a_new_file_in_the_folder_is_a_new_method(tmp_path, monkeypatch):
    """One file, nothing else: the table reads the folder."""
    file = tmp_path / "halfway.py"
    file.write_text(
        '"""A method of our own."""\n'
        "from functools import partial\n"
        "from domainadaptor import StepAdaptor\n"
        "from domainadaptor.norms.mixed import MixedNorm\n"
        '__all__ = ["half_way"]\n'
        "def half_way(network, *, share: float = 0.5):\n"
        '    """Half source, half batch."""\n'
        '    return StepAdaptor(network, norm=partial(MixedNorm, alpha=share, fold=False, variance="biased"))\n'
    )
    import domainadaptor.methods as folder

    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    assert domainadaptor.list_methods()["half-way"] == "Half source, half batch."
    assert domainadaptor.method_info("half-way").defaults == {"share": 0.5}


CONTRIBUTING = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
(OWN,) = (block for block in re.findall(r"^```python\n(.*?)^```$", CONTRIBUTING, re.M | re.S) if "__all__" in block)


@pytest.mark.slow
def test_the_example_of_contributing_passes_the_tests_of_every_method(tmp_path):
    """As it stands, in the folder of methods."""
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "short_tent.py").write_text(OWN)
    plugin = f"import domainadaptor.methods as folder\nfolder.__path__.append({str(tmp_path / 'methods')!r})\n"
    (tmp_path / "with_short_tent.py").write_text(plugin)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "with_short_tent", "tests/adaptation", "-k", "short-tent"]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 30


def test_a_composed_method_is_one_file_of_public_names(tmp_path, monkeypatch, net, images):
    import domainadaptor.methods as folder

    (tmp_path / "short_tent.py").write_text(OWN)
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    info = domainadaptor.method_info("short-tent")
    assert "domainadaptor.methods.short_tent" not in sys.modules  # read, not imported
    assert (info.year, info.options["lr"].doc) == (2021, "Learning rate.")
    assert domainadaptor.adapt(net, "short-tent", lr=1)(images).shape == (8, 7)
    with pytest.raises(BadOption, match="lr=-1: expected a finite number of at least 0"):
        domainadaptor.adapt(net, "short-tent", lr=-1)


def test_files_beside_the_methods(tmp_path, monkeypatch):
    """A file with an underscore is no method; one that exports nothing is explained."""
    import domainadaptor.methods as folder

    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    (tmp_path / "_shared.py").write_text("x = 1\n")
    domainadaptor.list_methods()
    (tmp_path / "forgotten.py").write_text("x = 1\n")
    with pytest.raises(BadOption, match="forgotten has no __all__"):
        domainadaptor.list_methods()


def test_names_are_in_lower_case_with_hyphens():
    names = registry.table("domainadaptor.methods")
    assert {"domainadaptor-t", "adabn-source-and-test", "cotta", "t3a"} <= set(names)  # functions and classes
    assert not any("_" in name or name != name.lower() for name in names)

"""Every public name has an example in its docstring, and all examples run."""

import doctest
import inspect
import re
from pathlib import Path

import pytest
import torch

import domainadaptor as da

API = Path(__file__).parents[2] / "docs" / "api" / "index.md"
ALIASES = {"OutputReader", "batch_only"}  # names of other things, which have no docstring of their own
NAMES = sorted({*da.__all__, "evaluate"} - {"__version__", "option_types", *ALIASES})


def beginning() -> str:
    """The lines that the page of the API puts before its examples."""
    found = re.search(r"```python\n(.*?)```", API.read_text(encoding="utf-8"), re.S)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_a_public_name_run(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if name == "evaluate":
        pytest.importorskip("tqdm", reason="evaluate needs the extra lab")
    names: dict = {}
    exec(beginning(), names)
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(getattr(da, name)) or "", names, name, None, None)
    assert examples.examples, f"{name} has no example"
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    with torch.random.fork_rng():
        runner.run(examples, out=report.append)
    assert not runner.failures, "".join(report)


@pytest.mark.parametrize("name", [*NAMES, *sorted(ALIASES)])
def test_every_public_name_is_on_the_page(name):
    assert re.search(rf"^\.\. (auto\w+|py:data):: {name}$", API.read_text(encoding="utf-8"), re.M)

"""docs/building-blocks.md names every block that exists, under an import line that works."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import domainadaptor
from domainadaptor.adaptation import losses
from domainadaptor.norms.base import AdaptiveNorm

PAGE = Path(__file__).parents[1] / "docs" / "building-blocks.md"
KINDS = {"Norms": AdaptiveNorm, "Objectives": domainadaptor.Objective, "Predictors": domainadaptor.Predictor}
# Blocks that are functions, or classes of no such kind.
OTHERS = {"Norms": {"batch_only"}, "Optimizers": {"make_optimizer", "LazyOptimizer"}}


def listed() -> dict[str, dict[str, tuple[str, str]]]:
    """Section -> block -> what it does, and its import line."""
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    row = re.compile(r"^\| `(\w+)` \| (.+?) \| `(from [\w.]+ import \w+)` \|$", re.M)
    return {s.partition("\n")[0]: {name: (does, line) for name, does, line in row.findall(s)} for s in sections}


def existing(kind: type) -> set[str]:
    """The public classes of a kind in the core that can be used as they are."""
    found = set()
    for room in ("norms", "adaptation", "methods"):
        package = importlib.import_module(f"domainadaptor.{room}")
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            for name, made in vars(module).items():
                if inspect.isclass(made) and issubclass(made, kind) and made.__module__ == module.__name__:
                    found |= {name} if not name.startswith("_") and not inspect.isabstract(made) else set()
    return found


def per_image_losses() -> set[str]:
    """Functions from logits, and for some a temperature, to a loss per image."""
    own = {name: f for name, f in vars(losses).items() if inspect.isfunction(f) and f.__module__ == losses.__name__}
    return {
        name for name, f in own.items() if list(inspect.signature(f).parameters) in (["logits"], ["logits", "heat"])
    }


@pytest.mark.parametrize("section", ["Norms", "Objectives", "Predictors", "Optimizers"])
def test_the_page_lists_what_exists(section):
    there = existing(KINDS[section]) if section in KINDS else set()
    there |= OTHERS.get(section, set()) | (per_image_losses() if section == "Objectives" else set())
    assert set(listed()[section]) == there


@pytest.mark.parametrize(("name", "entry"), [pair for blocks in listed().values() for pair in blocks.items()])
def test_each_block_has_a_sentence_and_an_import_line_that_works(name, entry):
    does, line = entry
    assert does.endswith(".")
    assert does.count(". ") == 0
    names: dict = {}
    exec(line, names)
    assert name in names
    if name in domainadaptor.__all__:
        assert line == f"from domainadaptor import {name}"

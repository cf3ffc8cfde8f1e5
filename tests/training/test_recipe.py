from dataclasses import replace

import pytest

from domainadaptor.errors import BadOption
from domainadaptor.training.recipe import Recipe, algorithms

BASE = Recipe("pacs", ("photo", "sketch"))


def test_every_algorithm_has_a_sentence():
    known = algorithms()
    assert {"erm", "mldg", "arm", "fsdcl", "mvrml"} <= set(known)
    assert all(text.endswith(".") for text in known.values())


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"lr": 2e-3}, {"sources": ("photo",)}, {"algorithm": "mldg"}, {"options": {"tasks": ("jigsaw",)}},
     {"select": "swad"}, {"norm": "iabn"}, {"weights": "none"}, {"head_bias": True}],
)  # fmt: skip
def test_whatever_differs_makes_another_run(change):
    assert replace(BASE, **change).id() != BASE.id()


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"algorithm": "mldq"}, "mldg"),
        ({"options": {"task": ("jigsaw",)}}, "tasks"),
        ({"select": "bst"}, "best"),
        ({"norm": "ibn"}, "iabn"),
        ({"lr": 0.0}, "above 0"),
        ({"epochs": 0}, "at least 1"),
        ({"schedule": "cos"}, "cosine"),
        ({"precision": "half"}, "bfloat16"),
    ],
)
def test_mistakes_are_explained(change, hint):
    with pytest.raises(BadOption, match=hint):
        replace(BASE, **change)

"""Options are tried before anything runs, those of methods that need a special network too."""

import pytest

import domainadaptor as da
from domainadaptor.lab.experiments.trial import complaint, wrong_options


@pytest.mark.parametrize("method", sorted(da.list_methods()))
def test_every_method_can_be_tried_as_it_is(method):
    assert complaint(method, {}) == ""


@pytest.mark.parametrize("method", ["tent", "note", "rotation", "jigsaw", "arm"])
def test_options_of_every_kind_of_method_are_looked_at(method):
    assert complaint(method, {"lr": 0.5}) == ""
    assert "lr=-5: expected" in complaint(method, {"lr": -5})


def test_all_that_is_wrong_is_said_and_nothing_else():
    given = {"temperature": "foo", "lr": "x", "loss": "y", "steps": 2}
    found = wrong_options("domainadaptor-t", given)
    assert sorted(text.partition("=")[0] for text in found) == ["loss", "lr", "temperature"]
    assert wrong_options("domainadaptor-t", {"steps": 2}) == []
    assert len(wrong_options("tent", {"nothing": 1, "lr": -1})) == 2


def own_method(network, *, task=None, lr=0.1):
    """Somebody's, with a task that is none of ours."""
    raise AssertionError("it is built with a trained network alone")


def broken_method(network, *, lr=0.1):
    """Raises whatever it likes."""
    raise ZeroDivisionError("no")


def test_methods_of_other_people():
    for name in ("own_method", "broken_method"):  # as a user types them on the command line
        da.method_info(f"{__name__}:{name}", allow_import=True)
    assert complaint(f"{__name__}:own_method", {"lr": 3}) == ""
    assert "no option 'rate'" in complaint(f"{__name__}:own_method", {"rate": 3})
    assert complaint(f"{__name__}:broken_method", {}).endswith("cannot be built: ZeroDivisionError: no")

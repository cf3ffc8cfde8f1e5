"""Options are checked and converted by the types that a signature declares."""

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from domainadaptor.errors import BadOption
from domainadaptor.options import Option, coerce_options, docstring_entries, parameters, parse_options

Rate = Annotated[float, Option("Learning rate.", ge=0)]


def function(
    network,
    *,
    lr: Rate = 0.1,
    steps: Annotated[int, Option(ge=1)] = 1,
    keep: Annotated[Literal[-1] | int, Option(ge=1)] = 1,
    every: Annotated[int | None, Option(ge=1)] = None,
    flag: bool = True,
    form: Literal["plain", "curly"] = "plain",
    loss: Literal["a", "b"] | None = None,
    alpha: Annotated[Literal["code"] | float, Option(gt=0, le=1)] = "code",
    layer: str | None = None,
    skip: str | Sequence[str] = "",
    numbers: Sequence[float] = (),
    anything: Any = None,
):
    """Do something.

    Args:
        network: Any.
        steps: Number of steps.
        form: One of two,
            written over two lines.
    """


@pytest.mark.parametrize(
    ("option", "given", "expected"),
    [
        ("lr", 1, 1.0),
        ("lr", np.float32(0.5), 0.5),
        ("steps", np.int64(3), 3),
        ("keep", -1, -1),
        ("every", None, None),
        ("loss", None, None),
        ("loss", "none", None),
        ("alpha", 1, 1.0),
        ("alpha", "code", "code"),
        ("layer", "none", "none"),
        ("skip", ["a", "b"], ["a", "b"]),
        ("numbers", (1, 2.5), (1.0, 2.5)),
        ("anything", function, function),
    ],
)
def test_values_are_converted_to_the_declared_type(option, given, expected):
    found = coerce_options(function, {option: given})[option]
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        ("lr", -1, "lr=-1: expected a finite number of at least 0"),
        ("lr", float("inf"), "lr=inf: expected a finite number"),
        ("lr", 10**400, "lr=10{78}…: expected a finite number"),
        ("lr", True, "lr=True: expected a finite number"),
        ("lr", None, "lr=None: expected a finite number"),
        ("lr", "0.5", "lr='0.5' is text: expected the number 0.5"),
        ("lr", "-5", "lr='-5': expected a finite number"),
        ("steps", 2.0, "steps=2.0: expected a whole number of at least 1"),
        ("steps", 0, "steps=0: expected a whole number of at least 1"),
        ("steps", 2**63, "expected a whole number"),
        ("keep", 0, "keep=0: expected one of -1 or a whole number of at least 1"),
        ("every", "x", "expected a whole number of at least 1 or None"),
        ("flag", 1, "flag=1: expected True or False"),
        ("form", "curl", "form='curl' is not known; did you mean 'curly'[?] available: plain, curly$"),
        ("form", 3, "available: plain, curly"),
        ("form", None, "available: plain, curly"),
        ("loss", "c", "available: a, b, none"),
        ("alpha", "cod", "did you mean 'code'[?] available: code, or a finite number above 0 and at most 1"),
        ("alpha", 0, "alpha=0: expected one of code or a finite number above 0 and at most 1"),
        ("skip", [1], "expected text or a list"),
        ("numbers", ["x"], "expected a list"),
        ("nothing", 1, "function has no option 'nothing'; did you mean"),
        ("learning_rate", 1, "did you mean 'lr'"),
    ],
)
def test_wrong_values_are_refused_with_what_was_expected(option, given, message):
    with pytest.raises(BadOption, match=message):
        coerce_options(function, {option: given})


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("lr", "0.05", 0.05),
        ("lr", "1", 1.0),
        ("steps", "2", 2),
        ("keep", "-1", -1),
        ("every", "none", None),
        ("every", "None", None),
        ("flag", "true", True),
        ("flag", "False", False),
        ("loss", "none", None),
        ("alpha", "0.5", 0.5),
        ("alpha", "code", "code"),
        ("layer", "3", "3"),
        ("layer", "true", "true"),
        ("layer", "none", None),
        ("skip", '["a", "b"]', ["a", "b"]),
        ("skip", "a,b", "a,b"),
        ("numbers", "[1, 2]", [1.0, 2.0]),
        ("anything", "3", 3),
        ("anything", "word", "word"),
    ],
)
def test_text_is_read_by_the_declared_type(option, text, expected):
    found = parse_options(function, {option: text})[option]
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("steps", "1.5", "steps=1.5: expected a whole number"),
        ("lr", "fast", "lr='fast': expected a finite number"),
        ("lr", "nan", "expected a finite number"),
        ("flag", "yes", "flag='yes': expected True or False"),
        ("form", "1", "form=1 is not known"),
        ("numbers", "[1,", "expected a list"),
        ("nothing", "1", "named has no option 'nothing'"),
    ],
)
def test_text_that_is_no_value_is_refused(option, text, message):
    with pytest.raises(BadOption, match=message):
        parse_options(function, {option: text}, "named")


def test_options_are_described():
    written = docstring_entries(inspect.getdoc(function))
    infos = {parameter.name: parameter.info(written) for parameter in parameters(function)}
    assert infos["lr"] == ("lr", "float of at least 0", 0.1, "Learning rate.")
    assert infos["steps"].doc == "Number of steps."
    assert infos["form"].doc == "One of two, written over two lines."
    assert infos["every"].type == "int of at least 1 or None"
    assert infos["alpha"].type == "code or float above 0 and at most 1"
    assert infos["anything"].type == ""


def test_partial_functions_and_classes_have_options_too():
    class Thing:
        def __init__(self, *, count: int = 1) -> None: ...

    assert coerce_options(Thing, {"count": 2}) == {"count": 2}
    assert coerce_options(partial(function, lr=3), {"lr": 2}) == {"lr": 2.0}
    with pytest.raises(BadOption, match="Thing has no option"):
        coerce_options(Thing, {"size": 2})


def test_a_function_without_types_takes_any_value_of_a_known_name():
    def plain(network, *, lr=0.1): ...

    def odd(network, *, lr: "NoSuchName" = 0.1): ...  # noqa: F821

    for one in (plain, odd):
        assert coerce_options(one, {"lr": "anything"}) == {"lr": "anything"}
        assert parse_options(one, {"lr": "0.5"}) == {"lr": 0.5}
        with pytest.raises(BadOption, match="has no option 'rate'"):
            coerce_options(one, {"rate": 1})

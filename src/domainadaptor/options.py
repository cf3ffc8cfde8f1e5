"""Checks of option values that answer a wrong one with the nearest right one."""

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from numbers import Integral, Real
from typing import Any

from domainadaptor.errors import BadOption


def suggestion(word: object, known: Iterable[str]) -> str:
    """The tail of a message: the nearest known word, then all of them."""
    names = list(known)
    near = difflib.get_close_matches(str(word).lower(), names, n=1, cutoff=0.5)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}available: {', '.join(names) or 'none'}"


def check_choice(option: str, value: object, allowed: Iterable[object]) -> None:
    """Refuses a value that is not one of those allowed."""
    values = list(allowed)
    if value not in values:
        words = ["none" if choice is None else str(choice) for choice in values]
        raise BadOption(f"{option}={value!r} is not known; {suggestion(value, words)}")


def check_number(option: str, value: object, *, low: float, high: float = math.inf, above: bool = False) -> None:
    """Refuses anything but a finite number from low (or strictly above it) to high."""
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not low <= value <= high or (above and value == low):  # type: ignore[operator]
        bound = f"above {low:g}" if above else f"at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
        raise BadOption(f"{option}={value!r}: expected a finite number {bound}")


def check_count(option: str, value: object, *, low: int) -> None:
    """Refuses anything but a whole number of at least low."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < low:
        raise BadOption(f"{option}={value!r}: expected a whole number of at least {low}")


def check_flag(option: str, value: object) -> None:
    """Refuses anything but True and False."""
    if not isinstance(value, bool):
        raise BadOption(f"{option}={value!r}: expected True or False")


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword options of a function with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def meanings_of(function: Callable[..., Any]) -> dict[str, str]:
    """What each option means, from the docstring's "Args"."""
    written = function.func if isinstance(function, partial) else function
    _, _, listed = (inspect.getdoc(written) or "").partition("Args:\n")
    meanings: dict[str, str] = {}
    for line in listed.partition("\n\n")[0].splitlines():
        name, colon, text = line.strip().partition(": ")
        if colon and len(line) - len(line.lstrip()) == 4:
            meanings[name] = text
        elif meanings:
            meanings[list(meanings)[-1]] += f" {line.strip()}"
    return {option: meanings.get(option, "") for option in defaults_of(function)}


def check_names(function: Callable[..., Any], name: str, options: Mapping[str, object]) -> None:
    """Refuses options that the function does not take."""
    known = defaults_of(function)
    wrong = [option for option in options if option not in known]
    if wrong:
        raise BadOption(f"{name} has no option {wrong[0]!r}; {suggestion(wrong[0], known)}")

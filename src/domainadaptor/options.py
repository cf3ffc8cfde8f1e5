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
    return (
        f"did you mean {_nearest(str(word).lower(), names)!r}? available: {', '.join(names)}"
        if names
        else "it has none"
    )


def _nearest(word: str, names: list[str]) -> str:
    """A name that contains the word or the other way round, or is its initials, or has the most letters in common."""
    initials = "".join(part[:1] for part in word.split("_"))
    for fits in (lambda n: n == initials and len(n) > 1, lambda n: len(word) > 2 and (word in n or n in word)):
        if near := [name for name in names if fits(name)]:
            return near[0]
    return difflib.get_close_matches(word, names, n=1, cutoff=0.0)[0]


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
        bound = f"above {low:g}" if above else f"at least {low:g}" if high > 1e30 else f"from {low:g} to {high:g}"
        raise BadOption(f"{option}={value!r}: expected a finite number {bound}")


def check_count(option: str, value: object, *, low: int) -> None:
    """Refuses anything but a whole number of at least low that fits into 63 bits."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not low <= int(value) < 2**63:
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

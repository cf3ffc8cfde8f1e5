"""Typed options: a function's signature declares names, types, bounds and documentation once.

An option is a keyword-only parameter. `Annotated[float, Option("Learning rate.", ge=0)]` adds bounds and a sentence to
its type; `domainadaptor.option_types` has the aliases that many functions share.
"""

import difflib
import inspect
import json
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from domainadaptor.errors import BadOption

_LARGEST_INT = 2**63 - 1
_NO = object()  # a value that does not fit


@dataclass(frozen=True)
class Option:
    """Metadata of an option, for `typing.Annotated`.

    Args:
        doc: One sentence on what the option does; an entry under "Args" in the function's docstring replaces it.
        ge: Smallest number.
        gt: Number that values must exceed.
        le: Largest number.
        expects: What messages say was expected, instead of the type.

    Example:
        >>> from typing import Annotated
        >>> Rate = Annotated[float, da.Option("Learning rate.", ge=0)]
        >>> da.Option(ge=0, le=1).allows(2)
        False
    """

    doc: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    expects: str = ""

    def allows(self, number: Any) -> bool:
        """Return whether a number is within the bounds."""
        return (
            (self.ge is None or number >= self.ge)
            and (self.gt is None or number > self.gt)
            and (self.le is None or number <= self.le)
        )

    def range(self) -> str:
        """Return the bounds in words, or ""."""
        if self.gt is not None:
            return f"above {self.gt:g}" + (f" and at most {self.le:g}" if _shown(self.le) else "")
        if self.ge is not None and _shown(self.ge):
            return f"from {self.ge:g} to {self.le:g}" if _shown(self.le) else f"of at least {self.ge:g}"
        return f"of at most {self.le:g}" if _shown(self.le) else ""


def _shown(bound: float | None) -> bool:
    return bound is not None and abs(bound) < 1e30  # the limits of float32 go without saying


class OptionInfo(NamedTuple):
    """One option of a function, for readers."""

    name: str
    type: str
    default: Any
    doc: str


class Parameter(NamedTuple):
    """One option of a function, for programs."""

    name: str
    annotation: Any
    default: Any

    def info(self, written: Mapping[str, str]) -> OptionInfo:
        """Return what readers need; `written` are the docstring's entries."""
        atoms = _atoms(self.annotation)
        doc = written.get(self.name) or next((option.doc for _, option in atoms if option.doc), "")
        return OptionInfo(self.name, type_text(self.annotation), self.default, doc)


def coerce_options(function: Callable[..., Any], options: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """Check options against a function's signature and return them in the declared types: lr=1 becomes 1.0.

    Args:
        function: Its keyword-only parameters are the options.
        options: Values by name.
        name: What messages call the function.

    Raises:
        BadOption: A name is unknown, or a value has the wrong type or is out of bounds.
    """
    known = {parameter.name: parameter for parameter in parameters(function)}
    for option in options:
        if option not in known:
            raise BadOption(f"{name or _name(function)} has no option {option!r}; {suggestion(option, known)}")
    return {option: coerce(option, known[option].annotation, value) for option, value in options.items()}


def parse_options(function: Callable[..., Any], texts: Mapping[str, str], name: str = "") -> dict[str, Any]:
    """Read options written as text, as on a command line, by the types that a function's signature declares.

    Raises:
        BadOption: A name is unknown, or a text is no value of the declared type.
    """
    known = {parameter.name: parameter for parameter in parameters(function)}
    values = {option: _parse(known[option], text) if option in known else text for option, text in texts.items()}
    return coerce_options(function, values, name)


def parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the options of a function: its keyword-only parameters."""
    written = function
    while isinstance(written, partial):
        written = written.func
    try:
        hints = get_type_hints(written.__init__ if inspect.isclass(written) else written, include_extras=True)
    except (NameError, TypeError, AttributeError):  # names that exist for type checkers alone
        hints = {}
    found = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    unclear = {p.name for p in found if p.annotation is p.empty or isinstance(p.annotation, str)}
    return tuple(
        Parameter(p.name, hints.get(p.name, Any) if p.name in unclear else p.annotation, p.default) for p in found
    )


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the options of a function with their defaults."""
    return {parameter.name: parameter.default for parameter in parameters(function)}


def docstring_entries(docstring: str) -> dict[str, str]:
    """Return the entries under "Args:" of a docstring whose indentation was removed."""
    _, _, listed = docstring.partition("Args:\n")
    entries: dict[str, str] = {}
    for line in listed.partition("\n\n")[0].splitlines():
        name, colon, text = line.strip().partition(": ")
        if colon and len(line) - len(line.lstrip()) == 4:
            entries[name] = text
        elif entries:
            entries[list(entries)[-1]] += f" {line.strip()}"
    return entries


def coerce(option: str, annotation: Any, value: Any) -> Any:
    """Return a value in the type that an option declares.

    Raises:
        BadOption: It does not fit.
    """
    atoms = _atoms(annotation)
    for kind, bounds in atoms:
        fitting = _fit(kind, bounds, value)
        if fitting is not _NO:
            return fitting
    choices = _choices(atoms)
    if choices and None in choices and isinstance(value, str) and value.lower() == "none":
        return None
    raise BadOption(_refusal(option, atoms, value))


def type_text(annotation: Any) -> str:
    """Return the values that an option takes, in short: "int of at least 1 or None"; "" for any."""
    return " or ".join(filter(None, (_short(kind, bounds) for kind, bounds in _atoms(annotation))))


def _short(kind: Any, bounds: Option) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if kind in (int, float):
        return f"{kind.__name__} {bounds.range()}".strip()
    if get_origin(kind) in (list, tuple, Sequence):
        return "list"
    return "None" if kind is type(None) else kind.__name__ if kind in (bool, str) else ""


def _atoms(annotation: Any, bounds: Option | None = None) -> list[tuple[Any, Option]]:
    """Return the alternatives of a type, each with its bounds."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *extras = get_args(annotation)
        return _atoms(inner, next((extra for extra in extras if isinstance(extra, Option)), bounds))
    if origin in (Union, types.UnionType):
        return [atom for arg in get_args(annotation) for atom in _atoms(arg, bounds)]
    return [(annotation, bounds or Option())]


def _fit(kind: Any, bounds: Option, value: Any) -> Any:
    """Return the value as one of these, or _NO."""
    origin = get_origin(kind)
    if origin is Literal:
        return next((c for c in get_args(kind) if isinstance(value, type(c)) and value == c), _NO)
    if origin in (list, tuple, Sequence):
        return _fit_sequence(kind, value)
    if kind is int:
        whole = isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) <= _LARGEST_INT
        return int(value) if whole and bounds.allows(value) else _NO
    if kind is float:
        number = _to_float(value)
        return number if math.isfinite(number) and bounds.allows(number) else _NO
    if kind is None or kind is type(None):
        return None if value is None else _NO
    if kind in (bool, str):
        return value if isinstance(value, kind) else _NO
    return value


def _to_float(value: Any) -> float:
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.inf


def _fit_sequence(kind: Any, value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return _NO
    alternatives = _atoms(get_args(kind)[0])
    found = [next((f for k, o in alternatives if (f := _fit(k, o, item)) is not _NO), _NO) for item in value]
    return _NO if any(item is _NO for item in found) else type(value)(found)


def _choices(atoms: Iterable[tuple[Any, Option]]) -> list[Any]:
    """Return the values of literal types, and None where it is one of several choices."""
    values = [value for kind, _ in atoms if get_origin(kind) is Literal for value in get_args(kind)]
    return [*values, None] if values and any(kind is type(None) for kind, _ in atoms) else values


def _expected(atoms: Sequence[tuple[Any, Option]]) -> str:
    if own := next((option.expects for _, option in atoms if option.expects), ""):
        return own
    words = [] if not _choices(atoms) else [f"one of {', '.join(map(_word, _choices(atoms)))}"]
    for kind, bounds in atoms:
        if kind is bool:
            words.append("True or False")
        elif kind in (int, float):
            words.append(f"{'a whole' if kind is int else 'a finite'} number {bounds.range()}".strip())
        elif kind is str:
            words.append("text")
        elif kind is type(None) and not _choices(atoms):
            words.append("None")
        elif get_origin(kind) in (list, tuple, Sequence):
            words.append("a list")
    return " or ".join(words)


def _refusal(option: str, atoms: Sequence[tuple[Any, Option]], value: Any) -> str:
    choices, given = _choices(atoms), f"{option}={_cut(repr(value))}"
    others = [atom for atom in atoms if get_origin(atom[0]) is not Literal and atom[0] is not type(None)]
    if isinstance(value, str) and (number := _number(value)) is not None and any(k in (int, float) for k, _ in atoms):
        if any(_fit(kind, bounds, number) is not _NO for kind, bounds in atoms):
            return f"{given} is text: expected the number {value}"
    elif choices and (isinstance(value, str) or not others):
        rest = f", or {_expected(others)}" if others else ""
        return f"{given} is not known; {suggestion(value, [_word(choice) for choice in choices])}{rest}"
    return f"{given}: expected {_expected(atoms)}"


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def _word(choice: object) -> str:
    return "none" if choice is None else str(choice)


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _parse(parameter: Parameter, text: str) -> Any:
    """Return a text as what the declared type makes of it; one that cannot be read stays for the message."""
    kinds = [kind for kind, _ in _atoms(parameter.annotation)]
    anything = parameter.annotation is Any
    word = text.strip().lower()
    if word == "none" and (type(None) in kinds or anything):
        return None
    if word in ("true", "false") and (bool in kinds or anything):
        return word == "true"
    if word.startswith("[") and (anything or any(get_origin(kind) in (list, tuple, Sequence) for kind in kinds)):
        try:
            return json.loads(text)
        except ValueError:
            return text
    number = _number(word) if str not in kinds or int in kinds or float in kinds else None
    return text if number is None else number


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__).replace("_", "-")


def suggestion(word: object, known: Iterable[str]) -> str:
    """Return the tail of a message: the nearest known word, then all of them."""
    names = list(known)
    if not names:
        return "it has none"
    return f"did you mean {_nearest(str(word).lower(), names)!r}? available: {', '.join(names)}"


def _nearest(word: str, names: list[str]) -> str:
    """Return a name that contains the word or vice versa, or is its initials, or shares the most letters."""
    initials = "".join(part[:1] for part in word.split("_"))
    for fits in (lambda n: n == initials and len(n) > 1, lambda n: len(word) > 2 and (word in n or n in word)):
        if near := [name for name in names if fits(name)]:
            return near[0]
    return difflib.get_close_matches(word, names, n=1, cutoff=0.0)[0]


def check_choice(option: str, value: object, allowed: Iterable[object]) -> None:
    """Refuse a value that is not one of those allowed."""
    coerce(option, Literal[tuple(allowed)], value)


def check_number(option: str, value: object, *, low: float, high: float = math.inf, above: bool = False) -> None:
    """Refuse anything but a finite number from low (or strictly above it) to high."""
    bounds = Option(gt=low, le=high) if above else Option(ge=low, le=high)
    coerce(option, Annotated[float, bounds], value)


def check_count(option: str, value: object, *, low: int) -> None:
    """Refuse anything but a whole number of at least low that fits into 63 bits."""
    coerce(option, Annotated[int, Option(ge=low)], value)

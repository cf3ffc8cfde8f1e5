"""Options of methods and data sets, written on the command line as name=value."""

import json
from typing import Annotated, Any

import typer

from domainadaptor.errors import BadOption

MethodOptions = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the method, as lr=0.01; may be repeated.")
]


DataOptions = Annotated[
    list[str] | None,
    typer.Option("--data-option", metavar="NAME=VALUE", help="An option of the data set, as severity=3; repeatable."),
]


Resize = Annotated[
    str | None,
    typer.Option(
        help="For --weights FILE: crop (shorter side, then a center crop) or squash (both sides, no crop); the "
        "network's usual otherwise."
    ),
]
Mean = Annotated[
    tuple[float, float, float] | None,
    typer.Option(help="For --weights FILE: what it was trained with, for red, green and blue between 0 and 1."),
]
Std = Annotated[tuple[float, float, float] | None, typer.Option(help="For --weights FILE: the deviations, likewise.")]


def parse_options(pairs: list[str], flag: str = "--option", example: str = "lr=0.01") -> dict[str, Any]:
    """Options of a method, an algorithm or a data set, written as name=value.

    Raises:
        BadOption: A pair is not of that form.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadOption(f"{flag} {pair!r}: expected name=value, as in {flag} {example}")
        options[name.strip().replace("-", "_")] = _value(text.strip())
    return options


def _value(text: str) -> object:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    if text.startswith("["):  # as commands in records have lists
        try:
            return json.loads(text)
        except ValueError:
            return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_data_options(pairs: list[str] | None) -> dict[str, Any]:
    """Options of a data set, written as name=value.

    Raises:
        BadOption: A pair is not of that form.
    """
    return parse_options(pairs or [], "--data-option", "severity=3")

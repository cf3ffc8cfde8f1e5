"""Options of methods and data sets, written on the command line as name=value."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from domainadaptor.cli.help import ADAPTATION, DATA, NETWORK
from domainadaptor.errors import BadOption
from domainadaptor.options import parse_options

MethodOptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        rich_help_panel=ADAPTATION,
        help="An option of the method, such as lr=0.01; may be repeated.",
    ),
]
DataOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--data-option",
        metavar="NAME=VALUE",
        rich_help_panel=DATA,
        help="An option of the data set, such as severity=3; may be repeated.",
    ),
]
Resize = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        rich_help_panel=NETWORK,
        help="For --weights FILE: crop (shorter side, then center crop) or squash (both sides). Default: the network's "
        "own.",
    ),
]
Mean = Annotated[
    tuple[float, float, float] | None,
    typer.Option(
        metavar="R G B", rich_help_panel=NETWORK, help="For --weights FILE: mean of its inputs, between 0 and 1."
    ),
]
Std = Annotated[
    tuple[float, float, float] | None,
    typer.Option(
        metavar="R G B", rich_help_panel=NETWORK, help="For --weights FILE: standard deviation of its inputs."
    ),
]


def split_pairs(pairs: Iterable[str] | None, flag: str = "--option", example: str = "lr=0.01") -> dict[str, str]:
    """Return the texts of options written as name=value.

    Raises:
        BadOption: A pair is not of that form.
    """
    texts: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadOption(f"{flag} {pair!r}: expected name=value, as in {flag} {example}")
        texts[name.strip().replace("-", "_")] = text.strip()
    return texts


def parse_method_options(method: str, pairs: list[str] | None) -> dict[str, Any]:
    """Return the options of a method that the user typed, in the types that the method declares.

    Raises:
        BadOption: A pair is not name=value, or the method does not take it.
    """
    from domainadaptor.catalog import method_options

    return method_options(method, split_pairs(pairs), text=True, allow_import=True)


def parse_options_by_method(methods: Sequence[str], pairs: list[str] | None) -> dict[str, dict[str, Any]]:
    """Return the options of each of several methods; those of one of them are written as METHOD:NAME=VALUE.

    Raises:
        BadOption: An option does not name one of the methods, or the method does not take it.
    """
    if len(methods) == 1 and not any(pair.startswith(f"{methods[0]}:") for pair in pairs or ()):
        return {methods[0]: parse_method_options(methods[0], pairs)}
    own: dict[str, list[str]] = {method: [] for method in methods}
    for pair in pairs or ():
        method = next((name for name in methods if pair.startswith(f"{name}:")), None)
        if method is None:
            raise BadOption(
                f"--option {pair!r}: with several methods, name one of them, as in --option {methods[-1]}:{pair}"
            )
        own[method].append(pair[len(method) + 1 :])
    return {method: parse_method_options(method, mine) for method, mine in own.items()}


def parse_data_options(dataset: str, pairs: list[str] | None) -> dict[str, Any]:
    """Return the options of a data set, in the types that it declares.

    Raises:
        BadOption: A pair is not name=value, or the data set does not take it.
    """
    from domainadaptor.lab.data.registry import find_dataset

    return parse_options(find_dataset(dataset), split_pairs(pairs, "--data-option", "severity=3"), dataset)

"""Options of methods and data sets, written on the command line as name=value."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from domainadaptor.cli.help import ADAPTATION, DATA, NETWORK, option
from domainadaptor.errors import BadOption
from domainadaptor.options import parse_options

_RESIZE = "For --weights FILE: pixels of the shorter side before the center crop; or squash (both sides to --size)."
_CROP = "For --weights FILE: share of the shorter side that is cropped, as in timm; in place of --resize."
_DATA = "An option of the data set, such as severity=3; repeatable."
_Color = tuple[float, float, float] | None

MethodOptions = Annotated[
    list[str] | None,
    option("NAME=VALUE", "An option of the method, such as lr=0.01; repeatable.", ADAPTATION, "--option"),
]
DataOptions = Annotated[list[str] | None, option("NAME=VALUE", _DATA, DATA, "--data-option")]
Resize = Annotated[str | None, option("PIXELS", _RESIZE, NETWORK)]
CropPct = Annotated[float | None, option("SHARE", _CROP, NETWORK)]
Mean = Annotated[_Color, option("R G B", "For --weights FILE: mean of its inputs, between 0 and 1.", NETWORK)]
Std = Annotated[_Color, option("R G B", "For --weights FILE: standard deviation of its inputs.", NETWORK)]


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
    """Return the options of a method that the user typed, in the types that the method declares."""
    from domainadaptor.catalog import method_options

    return method_options(method, split_pairs(pairs), text=True, allow_import=True)


def parse_options_by_method(methods: Sequence[str], pairs: list[str] | None) -> dict[str, dict[str, Any]]:
    """Return the options of each of several methods; those of one of them are written as METHOD:NAME=VALUE.

    Raises:
        BadOption: An option does not name one of the methods, or the method does not take it.
    """
    own: dict[str, list[str]] = {method: [] for method in methods}
    for pair in pairs or ():
        method = next((name for name in methods if pair.startswith(f"{name}:")), None)
        if method is None and len(methods) > 1:
            raise BadOption(
                f"--option {pair!r}: with several methods, name one of them, as in --option {methods[-1]}:{pair}"
            )
        own[method or methods[0]].append(pair.removeprefix(f"{method}:"))
    return {method: parse_method_options(method, mine) for method, mine in own.items()}


def find_data(dataset: str, root: Path | None) -> tuple[str, Path | None]:
    """Return the name of a data set and its root; a folder in place of the name is a data set of folders."""
    from domainadaptor.lab.data.registry import datasets

    if dataset in datasets() or not Path(dataset).is_dir():
        return dataset, root
    if root is not None:
        raise BadOption(f"{dataset!r} is a folder, which is the data directory itself: leave out --root")
    return "folders", Path(dataset)


def parse_data_options(dataset: str, pairs: list[str] | None) -> dict[str, Any]:
    """Return the options of a data set, in the types that it declares."""
    from domainadaptor.lab.data.registry import find_dataset

    return parse_options(find_dataset(dataset), split_pairs(pairs, "--data-option", "severity=3"), dataset)

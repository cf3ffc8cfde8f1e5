"""Tables of functions and their options, readable at 80 columns."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from rich.text import Text

from domainadaptor.cli.terminal import out
from domainadaptor.options import OptionInfo, option_infos
from domainadaptor.registry import sentence


def two_columns(rows: Iterable[tuple[str, str]], width: int | None = None) -> Table:
    """Return names with a sentence each; long sentences wrap between words."""
    table = Table(Column(no_wrap=True, min_width=width), Column(), box=None, show_header=False, padding=(0, 1, 0, 1))
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    return table


def option_table(options: Mapping[str, OptionInfo]) -> Table:
    """Return options with default and meaning."""
    table = Table(Column("option", no_wrap=True), Column("default", max_width=16), "meaning", box=SIMPLE_HEAD)
    for option in options.values():
        table.add_row(Text(option.name), Text(_short(option.default)), Text(meaning(option)))
    return table


def meaning(option: OptionInfo) -> str:
    """Return what an option does and the values that it takes."""
    return f"{option.doc} ({option.type})" if option.type else option.doc


def _short(default: object) -> str:
    if isinstance(default, float):
        return f"{default:.4g}"
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def listed(functions: Mapping[str, Callable[..., Any]]) -> dict[str, dict[str, Any]]:
    """Return what each function does, and its options, for JSON."""
    return {
        name: {
            "summary": sentence(function),
            "options": {option.name: option._asdict() for option in option_infos(function).values()},
        }
        for name, function in functions.items()
    }


def print_functions(heading: str, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Print each function with its options below it."""
    out.print(Text(heading, "bold"))
    for name, function in functions.items():
        out.print(two_columns([(name, sentence(function))], width=16))
        if infos := option_infos(function):
            rows = [(f"  {option.name}={_short(option.default)}", meaning(option)) for option in infos.values()]
            out.print(two_columns(rows, width=24))

"""Tables of functions and their options, readable at 80 columns."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from rich.text import Text

from domainadaptor.catalog import MethodInfo
from domainadaptor.cli.terminal import out
from domainadaptor.options import OptionInfo


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


def listed(infos: Mapping[str, MethodInfo]) -> dict[str, dict[str, Any]]:
    """Return what each function does, and its options, for JSON."""
    return {
        name: {"summary": info.summary, "options": {own: option._asdict() for own, option in info.options.items()}}
        for name, info in infos.items()
    }


def print_functions(heading: str, infos: Mapping[str, MethodInfo]) -> None:
    """Print each function with its options below it."""
    out.print(Text(heading, "bold"))
    for name, info in infos.items():
        out.print(two_columns([(name, info.summary)], width=16))
        if info.options:
            rows = [(f"  {option.name}={_short(option.default)}", meaning(option)) for option in info.options.values()]
            out.print(two_columns(rows, width=24))

"""Tables of what a user can name: what each does, and its options."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.table import Column, Table

from domainadaptor.cli.terminal import out
from domainadaptor.options import defaults_of, meanings_of
from domainadaptor.registry import sentence


def options_with_meanings(function: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """Each option with its default and what it means."""
    meanings = meanings_of(function)
    return {name: {"default": default, "means": meanings[name]} for name, default in defaults_of(function).items()}


def listed(functions: Mapping[str, Callable[..., Any]]) -> dict[str, dict[str, Any]]:
    """For programs: what each does, and its options."""
    return {
        name: {"does": sentence(function), "options": options_with_meanings(function)}
        for name, function in functions.items()
    }


def print_functions(kind: str, functions: Mapping[str, Callable[..., Any]]) -> None:
    """For people: one table, with a line for each option below what it belongs to."""
    table = Table(Column(kind, no_wrap=True), Column("default", no_wrap=True), "what it does", highlight=False)
    for name, entry in listed(functions).items():
        table.add_row(f"[bold]{name}[/]", "", entry["does"])
        for option, said in entry["options"].items():
            table.add_row(f"  {option}", str(said["default"]), said["means"])
        table.add_section()
    out.print(table)

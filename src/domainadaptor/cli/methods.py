"""`domainadaptor methods`: what there is."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Column, Table

import domainadaptor
from domainadaptor.cli.terminal import Json, out, print_json


def methods(
    name: Annotated[str, typer.Argument(help="Show this method's options.")] = "",
    as_json: Json = False,
) -> None:
    """List the methods, or the options of one."""
    if name:
        _show_options(name, as_json)
        return
    known = domainadaptor.list_methods()
    if as_json:
        print_json(
            {
                method: {"does": text, "options": domainadaptor.method_info(method).defaults, "about": _asdict(method)}
                for method, text in known.items()
            }
        )
        return
    table = Table(Column("method", no_wrap=True), "what it does", "paper", "kind", "needs", "passes")
    for method, text in known.items():
        is_ = domainadaptor.method_info(method)
        paper = f"{is_.paper} {is_.year}" if is_ and is_.year else ""
        cost = f"{is_.forwards} forward, {is_.backwards} backward" if is_ else ""
        row = (paper, is_.kind, ", ".join(is_.needs) or "nothing", cost) if is_ else ("",) * 4
        table.add_row(method, text, *row)
    out.print(table)
    out.print("Options of one: domainadaptor methods NAME", highlight=False)


def _asdict(method: str) -> dict[str, object] | None:
    said = domainadaptor.method_info(method)
    return None if said is None else asdict(said)


def _show_options(name: str, as_json: bool) -> None:
    options, meanings = domainadaptor.method_info(name).defaults, domainadaptor.meanings_of(name)
    if as_json:
        print_json({option: {"default": default, "means": meanings[option]} for option, default in options.items()})
        return
    table = Table("option", "default", "what it means", title=name)
    for option, default in options.items():
        table.add_row(option, repr(default), meanings[option])
    out.print(table if options else f"{name} has no options", highlight=False)

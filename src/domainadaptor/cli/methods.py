"""`domainadaptor methods`: the methods, or one of them with its options."""

from typing import Annotated

import typer
from rich.text import Text

from domainadaptor.catalog import METHODS, MethodInfo, describe, method_info
from domainadaptor.cli.listing import option_table, two_columns
from domainadaptor.cli.terminal import Json, out, print_json

EXAMPLES = r"""
domainadaptor methods
domainadaptor methods tent
"""

_KINDS = {
    "none": "No adaptation",
    "statistics": "Statistics of the norm layers",
    "loss": "Gradient steps on an unsupervised loss",
    "self-supervised": "Gradient steps on a self-supervised task",
    "teacher": "Teacher and student",
    "prediction": "Corrected predictions",
    None: "Other",
}


def methods(
    name: Annotated[str, typer.Argument(help="Show this method's paper, cost and options.")] = "",
    as_json: Json = False,
) -> None:
    """List the methods, or describe one."""
    if name:
        info = method_info(name, allow_import=True)
        print_json(info.as_dict()) if as_json else _show(info)
        return
    known = list(describe(METHODS).values())
    if as_json:
        print_json({info.name: info.as_dict() for info in known})
        return
    for kind, heading in _KINDS.items():
        if own := [(info.name, info.summary) for info in known if info.kind == kind]:
            out.print(Text(heading, "bold"))
            out.print(two_columns(own, width=max(len(info.name) for info in known)))
    out.print("Paper, cost and options of one: domainadaptor methods NAME", highlight=False)


def _show(info: MethodInfo) -> None:
    out.print(Text(info.name, "bold"), Text(info.summary))
    if info.details:
        out.print(Text(info.details))
    facts = [("Paper", f"{info.paper}, {info.year}")] if info.paper else []
    facts += [("Needs", ", ".join(info.needs) or "a trained network and test images, nothing else")]
    if info.forwards:
        facts += [("Cost per batch", f"forward passes: {info.forwards}; backward passes: {info.backwards}")]
    option = next((f" --option {name}={own.default}" for name, own in info.options.items()), "")
    facts += [("Example", f"domainadaptor predict NETWORK IMAGES --method {info.name}{option}")]
    out.print(two_columns(facts))
    out.print(Text("Options, with defaults" if info.options else "It has no options.", "bold"))
    out.print(option_table(info.options))

"""Directives that write what the catalog and the records know about methods."""

from typing import Any

from docutils import nodes
from records import BEDS, method_of, numbers, relative_times
from sphinx.util.docutils import SphinxDirective

import domainadaptor as da
from domainadaptor.catalog import MethodInfo

KINDS = {
    "none": "No adaptation",
    "statistics": "Statistics of the norm layers",
    "loss": "Gradient steps on an unsupervised loss",
    "self-supervised": "Gradient steps on a self-supervised task",
    "teacher": "Teacher and student",
    "prediction": "Corrected predictions",
}


def cell(text: object) -> str:
    """Return text for a cell of a Markdown table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def facts(info: MethodInfo) -> str:
    """Return paper, kind, needs and cost of a method."""
    rows = {
        "Call": f'`da.adapt(network, "{info.name}")`',
        "Paper": f"{info.paper}, {info.year}" if info.paper else "",
        "Changes": KINDS[info.kind] if info.kind else "",
        "Needs": "; ".join(info.needs) or "a trained network, nothing else",
        "Forward passes per batch": info.forwards,
        "Backward passes per batch": info.backwards,
        "Memory": memory(info),
    }
    lines = [f"| {name} | {cell(text) if name != 'Call' else text} |" for name, text in rows.items() if text]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def memory(info: MethodInfo) -> str:
    """Return whether a method is episodic or online by default."""
    if info.kind == "none":
        return ""
    if "reset_every" not in info.options:
        return ""
    every = info.defaults["reset_every"]
    if every is None:
        return "online: keeps what it learned; `reset_every=1` makes it episodic"
    return "episodic: resets after each batch" if every == 1 else f"online, with a reset every {every} batches"


def option_table(info: MethodInfo) -> str:
    """Return the options of a method with defaults, types and meanings."""
    if not info.options:
        return "There are no options."
    lines = [
        f"| `{name}` | `{option.default!r}` | {cell(option.type)} | {cell(option.doc)} |"
        for name, option in info.options.items()
    ]
    return "\n".join(["| option | default | values | meaning |", "| --- | --- | --- | --- |", *lines])


def number_table(name: str) -> str:
    """Return what the records say about a method: accuracy, gain over the source model, and time."""
    times = relative_times()
    lines = []
    for bed in BEDS:
        for number in numbers(bed):
            if method_of(bed.experiment).get(number.row) == name:
                time = f"{times[number.row]:.1f}" if number.row in times else ""
                link = f"[{bed.name}](../results/{bed.experiment}.md)"
                lines.append(f"| {link} | {cell(number.row)} | {number.accuracy:.1f} | {number.gain:+.1f} | {time} |")
    if not lines:
        return "It is not part of the tables in which all methods are compared."
    head = ["| test bed | row | accuracy, % | gain, points | time |", "| --- | --- | ---: | ---: | ---: |"]
    note = "\n\nGain over the source model; time per batch in units of the source model, accurate to a factor of two."
    return "\n".join([*head, *lines]) + note


class MethodCard(SphinxDirective):
    """`{method-card} NAME`: cost, needs, numbers and options of a method."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the tables."""
        info = da.method_info(self.arguments[0])
        text = "\n\n".join([facts(info), "**Numbers**", number_table(info.name), "**Options**", option_table(info)])
        return self.parse_text_to_nodes(text)


class MethodTable(SphinxDirective):
    """`{method-list}`: one line for each method, by what it changes."""

    def run(self) -> list[nodes.Node]:
        """Return a table for each kind."""
        infos = [da.method_info(name) for name in da.list_methods()]
        parts = []
        for kind, title in KINDS.items():
            lines = [
                f"| [{info.name}]({info.name}.md) | {cell(info.summary)} | {cell(info.forwards or 1)} "
                f"| {cell('; '.join(info.needs))} |"
                for info in infos
                if info.kind == kind
            ]
            head = ["| method | what it does | forward passes | needs |", "| --- | --- | --- | --- |"]
            parts += [f"**{title}**", "\n".join(head + lines)]
        return self.parse_text_to_nodes("\n\n".join(parts))


def setup(app: Any) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("method-card", MethodCard)
    app.add_directive("method-list", MethodTable)
    return {"parallel_read_safe": True}

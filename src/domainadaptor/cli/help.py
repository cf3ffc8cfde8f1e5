"""The layout of `COMMAND --help`: two columns that suit 80 characters, options grouped by panel."""

from typing import Any

import typer
from typer.core import TyperCommand

# Option groups, in the order in which help shows them; options without a group come first, under "Options".
NETWORK, DATA, ADAPTATION, TRAINING, RUN = "Network", "Data", "Adaptation", "Training", "Run and output"
CLUSTER = "Several machines"
_GROUPS = ("Arguments", "Options", NETWORK, DATA, ADAPTATION, TRAINING, RUN, CLUSTER)
_NAMES = 26  # characters of the first column; help of a longer name starts on the next line


def option(metavar: str | None, text: str, group: str | None = None, *names: str, **more: Any) -> Any:
    """Return a typer option: what help calls its value (None for a flag), one sentence, and its group."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=group, **more)


class PlainCommand(TyperCommand):
    """A command whose help has one section per group of options, and ends with examples: its epilog, line by line."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line without typer's braces around arguments."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then each group of options."""
        sections: dict[str, list[tuple[str, str]]] = {group: [] for group in _GROUPS}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is None:
                continue
            if param.param_type_name == "argument":
                sections["Arguments"].append((param.metavar or param.name.upper(), record[1]))
            else:
                group = getattr(param, "rich_help_panel", None) or (RUN if "--help" in param.opts else "Options")
                sections[group].append(record)
        width = max(len(name) for records in sections.values() for name, _ in records if len(name) <= _NAMES)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), text) for name, text in records], col_max=_NAMES)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples as they are; the lines of a paragraph would be joined."""
        with formatter.section("Examples"):
            for line in (self.epilog or "").strip().splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")

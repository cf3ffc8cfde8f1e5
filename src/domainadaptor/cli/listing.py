"""Tables of functions and their options, readable at 80 columns."""

from collections.abc import Iterable, Mapping

from rich.table import Column, Table
from rich.text import Text

from domainadaptor.catalog import MethodInfo
from domainadaptor.cli.terminal import out, print_json
from domainadaptor.options import OptionInfo


def two_columns(rows: Iterable[tuple[str, str]], width: int | None = None) -> Table:
    """Return names with a sentence each; long sentences wrap between words."""
    table = Table(Column(no_wrap=True, min_width=width), Column(), box=None, show_header=False, padding=(0, 1, 0, 1))
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    return table


def option_table(options: Mapping[str, OptionInfo]) -> Table:
    """Return options as name=default, with their meaning and the values that they take."""
    rows = []
    for name, option in options.items():
        default: object = option.default
        if isinstance(default, float):
            default = f"{default:.4g}"
        elif isinstance(default, tuple):
            default = ", ".join(map(str, default))
        rows.append((f"  {name}={default}", f"{option.doc} ({option.type})" if option.type else option.doc))
    return two_columns(rows, width=24)


def show_functions(sections: Mapping[str, Mapping[str, MethodInfo]], example: str, *, as_json: bool) -> None:
    """Print each function with its options below it; as JSON, by section if there are several."""
    if as_json:
        listed = {part: {name: info.as_dict() for name, info in infos.items()} for part, infos in sections.items()}
        print_json(listed if len(listed) > 1 else next(iter(listed.values())))
        return
    for section, infos in sections.items():
        out.print(Text(section.capitalize(), "bold"))
        for name, info in infos.items():
            out.print(two_columns([(name, info.summary)], width=16))
            if info.options:
                out.print(option_table(info.options))
    out.print(f"Example: domainadaptor {example}", highlight=False)

"""Tables and prose as HTML; every letter from a record is escaped."""

import html
import re

from domainadaptor.lab.reports.grid import Entry, Grid

_SPAN = re.compile(r"(`+)(.+?)\1|\*\*(.+?)\*\*|\*(\S(?:.*?\S)?)\*|\[([^\]]+)\]\(((?:https?://|#)[^\s)]+)\)")
_MANY = 9  # columns, from which on they move closer


def escape(text: str) -> str:
    """Text that a browser shows as it is."""
    return html.escape(text, quote=True)


def table(grid: Grid) -> str:
    """A table that scrolls where the screen is narrow."""
    head = "".join(
        f'<th scope="col"{" class=paper" if at in grid.paper_columns else ""}>{escape(name)}</th>'
        for at, name in enumerate(grid.columns)
    )
    lines = []
    group = ""
    for line in grid.lines:
        if line.group and line.group != group and not line.muted:
            wide = len(grid.columns) + 1
            lines.append(f'<tr class="group"><th scope="rowgroup" colspan="{wide}">{escape(line.group)}</th></tr>')
        group = line.group
        cells = "".join(_entry(entry, at in grid.paper_columns) for at, entry in enumerate(line.entries))
        kind = ' class="paper"' if line.muted else ""
        lines.append(f'<tr{kind}><th scope="row">{escape(line.label)}</th>{cells}</tr>')
    dense = ' class="dense"' if len(grid.columns) > _MANY else ""
    caption = f"<p class=caption>{escape(grid.caption)}</p>" if grid.caption else ""
    return (
        f'<div class="wide" tabindex="0"><table{dense}><thead><tr><th scope="col">{escape(grid.corner)}</th>{head}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody></table></div>{caption}"
    )


def prose(text: str) -> str:
    """Simple Markdown: paragraphs, lists, code, emphasis, links; anything else is text."""
    blocks = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in block.splitlines() if line.strip()]
        if lines and all(line.startswith(("- ", "* ")) for line in lines):
            blocks.append("<ul>" + "".join(f"<li>{inline(line[2:])}</li>" for line in lines) + "</ul>")
        elif lines:
            blocks.append(f"<p>{inline(' '.join(lines))}</p>")
    return "".join(blocks)


def inline(text: str) -> str:
    """Code, emphasis and links of one paragraph."""
    parts, end = [], 0
    for match in _SPAN.finditer(text):
        parts.append(escape(text[end : match.start()]))
        end = match.end()
        _, code, strong, soft, name, place = match.groups()
        if code is not None:
            parts.append(f"<code>{escape(code.strip())}</code>")
        elif strong is not None:
            parts.append(f"<strong>{inline(strong)}</strong>")
        elif soft is not None:
            parts.append(f"<em>{inline(soft)}</em>")
        else:
            parts.append(f'<a href="{escape(place)}">{escape(name)}</a>')
    return "".join([*parts, escape(text[end:])])


def _entry(entry: Entry, paper: bool) -> str:
    text = escape(entry.text)
    text = f"<strong>{text}</strong>" if entry.bold else text
    kinds = [kind for kind, true in (("muted", entry.muted), ("paper", paper)) if true]
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    hint = f' title="{escape(entry.hint)}"' if entry.hint else ""
    return f"<td{kind}{hint}>{text}</td>"

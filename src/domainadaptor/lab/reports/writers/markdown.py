"""Tables and sections as Markdown."""

import re
from collections.abc import Sequence

from domainadaptor.lab.reports.grid import Entry, Grid
from domainadaptor.lab.reports.guide import HOW_TO_READ, NAMES
from domainadaptor.lab.reports.sections import Chapter, Section, gap_lines

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~&#$])")


def chapter(found: Chapter) -> str:
    """One experiment."""
    plan = found.plan
    parts = [f"# {escape(plan.title)}"]
    if plan.about:
        parts.append(prose(plan.about))
    if plan.command:
        parts.append(code([plan.command]))
    parts += [f"- {prose(remark)}" for remark in plan.remarks]
    parts += [section(part, plan.command) for part in found.sections]
    return "\n\n".join(parts) + "\n"


def contents(found: Sequence[Chapter], training: bool) -> str:
    """The list of experiments, with two sentences on each and how many cells it lacks."""
    lines = ["# Results", "All of it on one page: `index.html`, with figures in `figures`.", prose(HOW_TO_READ)]
    entries = []
    for part in found:
        lacks = sum(len(section.shown.gaps) for section in part.sections)
        about = re.match(r"(?:.*?(?:\.\s|$)){1,2}", part.plan.about.strip(), re.DOTALL)
        said = f": {prose(' '.join(about[0].split()))}" if about and about[0] else ""
        missing = f" (**{lacks} cells to run**)" if lacks else ""
        entries.append(f"- [{escape(part.plan.title)}]({part.plan.name}.md){said}{missing}")
    entries += ["- [Trained networks](training.md)"] if training else []
    return "\n\n".join([*lines, "\n".join(entries), f"Names: {prose(NAMES)}"]) + "\n"


def section(part: Section, command: str) -> str:
    """One table of an experiment, with its figures and what must be said of it."""
    lines = [f"## {escape(part.title)}"]
    if part.sample:
        lines.append(escape(part.sample))
    if part.shown.problem:
        lines.append(f"**Not shown:** {escape(part.shown.problem)}")
    for grid in part.shown.grids:
        lines.append(table(grid))
        if grid.caption:
            lines.append(escape(grid.caption))
    lines += [f"![{escape(figure.caption)}](figures/{figure.name}.png)" for figure in part.figures]
    if part.remarks:
        lines.append("What to know:")
        lines.append("\n".join(f"- {escape(remark)}" for remark in part.remarks))
    for heading, entries in gap_lines(part.shown.gaps, command):
        lines.append(f"{escape(heading)}:")
        for gap, commands in entries:
            lines.append("\n".join([f"- {escape(gap)}", *(f"  - `` {_plain(todo)} ``" for todo in commands)]))
    if part.origin.facts:
        lines.append("How it was obtained:")
        facts = [f"- {escape(name)}: {escape(value)}" for name, value in part.origin.facts if name != "sample"]
        facts += [f"- {escape(label)}: {escape(options)}" for label, options in part.origin.methods]
        lines.append("\n".join(facts))
        makers = list(dict.fromkeys(made for _, made in part.origin.checkpoints if made))
        if makers:
            lines += ["The networks were made by:", code(makers)]
    return "\n\n".join(lines)


def table(grid: Grid) -> str:
    """A pipe table; the best of a column is bold."""
    lines = [_line([escape(grid.corner), *map(escape, grid.columns)]), _line(["---"] + ["---:"] * len(grid.columns))]
    group = ""
    for line in grid.lines:
        if line.group and line.group != group and not line.muted:
            lines.append(_line([f"*{escape(line.group)}*", *[""] * len(grid.columns)]))
        group = line.group
        label = f"↳ {escape(line.label)}" if line.muted else escape(line.label)
        lines.append(_line([label, *map(_entry, line.entries)]))
    return "\n".join(lines)


def escape(text: str) -> str:
    """Text that stays what it is."""
    return _SPECIAL.sub(r"\\\1", _plain(text))


def prose(text: str) -> str:
    """Somebody's own Markdown, without HTML in it."""
    return "".join(
        part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(re.split(r"(`+[^`]*`+)", text))
    )


def code(lines: Sequence[str]) -> str:
    """A block that nothing inside can end."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence, *map(_plain, lines), fence])


def _entry(entry: Entry) -> str:
    return f"**{escape(entry.text)}**" if entry.bold else escape(entry.text)


def _plain(text: str) -> str:
    """In one line."""
    return " ".join(text.split())


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

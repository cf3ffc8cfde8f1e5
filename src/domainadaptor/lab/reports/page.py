"""One HTML page with every table and figure: no scripts, nothing from elsewhere, readable offline."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

from domainadaptor.lab.reports.figures.canvas import Drawn
from domainadaptor.lab.reports.grid import Entry, Grid, Line
from domainadaptor.lab.reports.guide import HOW_TO_READ, NAMES
from domainadaptor.lab.reports.sections import Chapter, Section, gap_lines
from domainadaptor.lab.reports.training import ABOUT, CAPTION, FIGURE, MINUTES, TrainingTable
from domainadaptor.lab.reports.writers.html import escape, inline, prose, table

_MORE = "More numbers of the same runs (by domain and class: the folder details)"


def page(
    chapters: Sequence[Chapter],
    training: Sequence[TrainingTable],
    damaged: Mapping[str, str],
    figures: Mapping[str, Drawn],
    notes: Sequence[str] = (),
) -> str:
    """The whole page."""
    body = [
        "<header><h1>Results</h1>",
        f"<p>{inline(HOW_TO_READ)}</p>",
        f"<details><summary>Names</summary><p>{inline(NAMES)}</p></details>",
        *(f'<p class="warning">{inline(note)}</p>' for note in notes),
        _damaged(damaged),
        _contents(chapters, training),
        _overview(chapters),
        "</header><main>",
        *(_chapter(chapter, figures) for chapter in chapters),
        _training(training, figures) if training else "",
        "</main>",
    ]
    style = files("domainadaptor.lab.reports").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>DomainAdaptor: results</title>'
        f"<style>\n{style}</style></head>\n<body>\n" + "\n".join(part for part in body if part) + "\n</body></html>\n"
    )


def _damaged(damaged: Mapping[str, str]) -> str:
    if not damaged:
        return ""
    files_ = "".join(f"<li><code>{escape(name)}</code>: {escape(why)}</li>" for name, why in damaged.items())
    said = f"{len(damaged)} damaged file{'s' if len(damaged) > 1 else ''} left out"
    return f'<div class="warning"><p><strong>{said}:</strong></p><ul>{files_}</ul></div>'


def _contents(chapters: Sequence[Chapter], training: Sequence[TrainingTable]) -> str:
    items = []
    for chapter in chapters:
        inner = "".join(f'<li><a href="#{_anchor(s)}">{escape(s.title)}</a></li>' for s in chapter.sections)
        inner = f"<ul>{inner}</ul>" if len(chapter.sections) > 1 else ""
        items.append(f'<li><a href="#{escape(chapter.plan.name)}">{escape(chapter.plan.title)}</a>{inner}</li>')
    if training:
        items.append('<li><a href="#training">Trained networks</a></li>')
    return f'<nav aria-label="Contents"><h2>Contents</h2><ol>{"".join(items)}</ol></nav>'


def _overview(chapters: Sequence[Chapter]) -> str:
    """How complete each experiment is."""
    lines = []
    for chapter in chapters:
        wanted = [w for planned in chapter.plan.tables for w in planned.runs()]
        runs = len({w.id for w in wanted if w.id}) + sum(not w.id for w in wanted)
        gaps = [gap for section in chapter.sections for gap in section.shown.gaps]
        failed = sum(bool(gap.failed) for gap in gaps)
        numbers = (len(chapter.sections), runs, failed, len(gaps) - failed)
        texts = [*map(str, numbers), "complete" if not gaps else "to be continued"]
        lines.append(Line(chapter.plan.title, tuple(map(Entry, texts))))
    if not lines:
        return ""
    grid = Grid("experiment", ("tables", "runs planned", "of them failed", "not run yet", "state"), tuple(lines))
    return f"<details><summary>How complete it is</summary>{table(grid)}</details>"


def _chapter(chapter: Chapter, figures: Mapping[str, Drawn]) -> str:
    plan = chapter.plan
    remarks = "".join(f"<li>{inline(remark)}</li>" for remark in plan.remarks)
    parts = [
        f'<article><h2 id="{escape(plan.name)}">{escape(plan.title)}</h2>',
        prose(plan.about),
        f"<p>Made by <code>{escape(plan.command)}</code>; what is there is not run again, another "
        "<code>--output</code> begins anew.</p>"
        if plan.command
        else "",
        f'<div class="remarks"><h4>Remarks</h4><ul>{remarks}</ul></div>' if remarks else "",
        *(_section(section, plan.command, figures) for section in chapter.sections),
        "</article>",
    ]
    return "\n".join(part for part in parts if part)


def _section(section: Section, command: str, figures: Mapping[str, Drawn]) -> str:
    shown = section.shown
    remarks = "".join(f"<li>{escape(remark)}</li>" for remark in section.remarks)
    parts = [
        f'<section><h3 id="{_anchor(section)}">{escape(section.title)}</h3>',
        f'<p class="sample">{escape(section.sample)}</p>' if section.sample else "",
        f'<p class="warning">Not shown: {escape(shown.problem)}</p>' if shown.problem else "",
        *map(table, shown.grids),
        f'<div class="remarks"><h4>What to know</h4><ul>{remarks}</ul></div>' if remarks else "",
        *_gaps(section, command),
        *(_figure(figure.name, figure.caption, figures) for figure in section.figures),
        f'<p class="sample">{inline(section.note)}</p>' if section.note else "",
        *(f"<details><summary>{_MORE}</summary>{table(grid)}</details>" for grid in shown.folded),
        _origin(section),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _gaps(section: Section, command: str) -> Iterator[str]:
    for heading, entries in gap_lines(section.shown.gaps, command):
        items = "".join(
            f"<li>{escape(said)}" + "".join(f"<br><code>{escape(todo)}</code>" for todo in commands) + "</li>"
            for said, commands in entries
        )
        yield f'<div class="gaps"><h4>{escape(heading)}</h4><ul>{items}</ul></div>'


def _origin(section: Section) -> str:
    found = section.origin
    if not found.facts:
        return ""
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in found.facts)
    methods = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in found.methods)
    networks = "".join(
        f"<li>{escape(what)}" + (f"<br><code>{escape(made)}</code>" if made else "") + "</li>"
        for what, made in found.checkpoints
    )
    commands = "\n".join(found.commands)
    return (
        f"<details><summary>How it was obtained</summary><dl>{facts}</dl>"
        + (f"<h4>Methods and their options</h4><dl>{methods}</dl>" if methods else "")
        + (f"<h4>Networks, and the commands that make them</h4><ul>{networks}</ul>" if networks else "")
        + (f"<details><summary>Commands that repeat each run ({len(found.commands)})</summary>"
           f"<pre>{escape(commands)}</pre></details>" if commands else "")
        + "</details>"
    )  # fmt: skip


def _training(training: Sequence[TrainingTable], figures: Mapping[str, Drawn]) -> str:
    parts = [
        '<article><h2 id="training">Trained networks</h2>',
        f"<p>{ABOUT} {MINUTES}</p>",
    ]
    for part in training:
        commands = escape("\n".join(part.commands))
        parts.append(f"<section><h3>{escape(part.setting)}</h3>{table(part.grid)}")
        parts += [f'<p class="sample">{escape(note)}</p>' for note in part.notes]
        parts.append(f"<details><summary>Commands that make them</summary><pre>{commands}</pre></details></section>")
    parts.append(_figure(FIGURE, CAPTION, figures))
    return "\n".join([*parts, "</article>"])


def _figure(name: str, caption: str, figures: Mapping[str, Drawn]) -> str:
    if name not in figures:
        return ""
    source = f"data:image/png;base64,{b64encode(figures[name].png).decode()}"
    said = escape(caption)
    return f'<figure><img alt="{said}" src="{source}"><figcaption>{said}</figcaption></figure>'


def _anchor(section: Section) -> str:
    return escape(f"table-{section.name}")

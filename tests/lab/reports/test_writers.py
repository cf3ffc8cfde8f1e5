import csv as reader
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from domainadaptor.lab.reports.grid import Entry, Grid, Line
from domainadaptor.lab.reports.records import read_results
from domainadaptor.lab.reports.sections import chapters
from domainadaptor.lab.reports.writers import csv, html, latex, markdown
from tests.lab.reports.folder import Folder, table

EVIL = 'a|b <script>alert("1")</script> & 50_000 % $x$ #1 ~^ \\end{table} `c` *d* [e](f)'


class Seen(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def grid():
    lines = (
        Line(EVIL, (Entry("85.1 ± 0.3", bold=True), Entry("failed", hint=EVIL)), EVIL),
        Line("b", (Entry("−2.0"), Entry())),
    )
    return Grid("method", (EVIL, "mean"), lines, EVIL)


def test_html_shows_what_was_written(grid):
    seen = Seen(html.table(grid))
    assert "script" not in seen.tags
    assert seen.text.count(EVIL) == 4  # column, group, label, caption
    assert "<strong>85.1 ± 0.3</strong>" in html.table(grid)


def test_prose_is_simple_markdown_and_nothing_else():
    text = "One *soft*, **hard**, `<code>` and [a link](https://x.org/?a=1&b=2)."
    text += "\n\n- a_b\n- <b>\n\n[no](javascript:alert(1))"
    assert html.prose(text) == (
        '<p>One <em>soft</em>, <strong>hard</strong>, <code>&lt;code&gt;</code> and <a href="https://x.org/?a=1&amp;b=2">'
        "a link</a>.</p><ul><li>a_b</li><li>&lt;b&gt;</li></ul><p>[no](javascript:alert(1))</p>"
    )
    assert "script" not in Seen(html.prose(EVIL)).tags


def test_markdown_keeps_its_columns(grid):
    lines = markdown.table(grid).splitlines()
    assert {len(re.split(r"(?<!\\)\|", line)) for line in lines} == {5}
    assert "**85.1 ± 0.3**" in lines[3]
    assert re.sub(r"\\(.)", r"\1", markdown.escape(EVIL)) == EVIL
    assert not re.search(r"(?<!\\)[<|*_`\[&]", markdown.escape(EVIL))


def test_a_code_block_cannot_be_ended_from_inside():
    assert markdown.code(["a ```` b"]).splitlines() == ["`````", "a ```` b", "`````"]


def test_markdown_of_a_plan_has_no_html():
    assert markdown.prose("a <script> and `<tag>`") == "a &lt;script> and `<tag>`"


def test_latex_is_escaped_and_in_the_papers_layout(grid):
    text = latex.table(grid, EVIL, "tab:x")
    assert r"\begin{tabular}{l|c|c}" in text
    assert r"{l|ccc}" in latex.table(replace(grid, columns=("layers", "mean", "slope"), paper_columns=()), "", "")
    assert r"$\mathbf{85.1}_{\pm0.3}$" in text
    assert "$-2.0$" in text
    assert text.count(r"\end{table}") == 1
    escaped = latex.escape(EVIL)
    assert not re.search(r"(?<!\\)[&%_#]", escaped)
    assert r"\textbackslash{}end\{table\}" in escaped
    plain = text.replace(escaped, "").replace(r"\\", "")
    assert not re.search(r"[%#]", plain)


def test_latex_tables_have_labels_of_their_own_and_say_when_pdflatex_is_not_enough(tmp_path, grid):
    made = Folder(tmp_path, images=30)
    made.plan("x", [table("rate α ≥ 0.5", [made.row("tent", "tent")])])
    (chapter,) = chapters(read_results(tmp_path), None)
    (section,) = chapter.sections
    twice = replace(section, shown=replace(section.shown, grids=(grid, grid)))
    text = latex.chapter(replace(chapter, sections=(twice,)))
    assert re.findall(r"\\label{(.*)}", text) == ["tab:x", "tab:x-2"]
    assert r"$\alpha$ $\ge$ 0.5" in text
    assert "lualatex" not in latex.chapter(chapter)
    assert "lualatex" in latex.chapter(replace(chapter, sections=(replace(section, title="鳥"),)))


def test_csv_holds_full_numbers_and_any_label(tmp_path):
    made = Folder(tmp_path, images=30)
    made.plan("x", [table(EVIL, [made.row(EVIL, "tent"), made.row("late", "slr", keep=False)])])
    (chapter,) = chapters(read_results(tmp_path), None)
    lines = list(reader.DictReader(csv.chapter(chapter).splitlines()))
    assert len(lines) == 10
    assert lines[0]["row"] == lines[0]["table"] == EVIL
    right = sum(made.record(["sketch"], "tent", seed)["scores"]["sketch"]["right"] for seed in range(3))
    assert float(lines[3]["value"]) == pytest.approx(100 * right / 90, abs=1e-12)
    assert lines[5]["state"] == "missing"
    assert "--method slr" in lines[5]["command"]

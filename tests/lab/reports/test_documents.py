import re
from html.parser import HTMLParser

import pytest

from domainadaptor.lab.reports.documents import _environment, escape, html, latex, prose, render
from domainadaptor.lab.reports.tables import PrintedTable, TableLine

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
def evil_table():
    lines = (
        TableLine(EVIL, ("85.1 ± 0.3", "failed"), EVIL, frozenset({0})),
        TableLine("b", ("−2.0", "")),
    )
    return PrintedTable("method", (EVIL, "mean"), lines, EVIL)


@pytest.fixture
def macros():
    return _environment().get_template("macros.md.j2").module


def test_a_markdown_table_keeps_its_columns_and_shows_what_was_written(evil_table, macros):
    text = macros.table(evil_table).strip()
    assert {len(re.split(r"(?<!\\)\|", line)) for line in text.splitlines()} == {5}
    assert "**85.1 ± 0.3**" in text.splitlines()[3]
    seen = Seen(html(text))
    assert "script" not in seen.tags
    assert seen.text.count(EVIL) == 3  # column, group, label
    assert re.sub(r"\\(.)", r"\1", escape(EVIL)) == EVIL


def test_a_code_block_cannot_be_closed_from_inside(macros):
    assert macros.code(["a ```` b"]).split("\n")[-4:-1] == ["`````", "a ```` b", "`````"]


def test_prose_of_a_plan_is_markdown_without_html():
    assert prose("a <script> and `<tag>`") == "a &lt;script> and `<tag>`"
    text = html(
        prose("One *soft*, **hard**, `<code>` and [a link](https://x.org/).\n\n- a_b\n- <b>\n\n[no](javascript:x)")
    )
    assert "<em>soft</em>, <strong>hard</strong>, <code>&lt;code&gt;</code>" in text
    assert '<a href="https://x.org/">' in text
    assert "<li>&lt;b&gt;</li>" in text
    assert 'href="javascript' not in text
    assert "script" not in Seen(html(prose(EVIL))).tags


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>", "``<img>`", "`<img>``", "\\`<img>`", "`\n\n<img>\n\n`", "``` <img> ``",
        "a ` b\n\n<img> `", "| a | b |\n| - | - |\n| `x | <img>` |", "<a title='`'> <img> `", "`` a ` <img> `` c `",
        "`a` <img> `b`", "<!-- -->", "<?x ?>", "<https://x.org/<img>", "[`](<img>)`", "&lt;img>",
        "~~~\n<img>\n~~~\n<img>",
    ],
)  # fmt: skip
def test_no_html_gets_through_prose(text):
    assert not {"img", "a"} & set(Seen(html(prose(text))).tags)
    assert "<!--" not in html(prose(text))
    assert "<?" not in html(prose(text))


def test_figures_are_embedded():
    text = html("![A caption](figures/x.png)", {"x": b"png"})
    assert '<img src="data:image/png;base64,cG5n"' in text
    assert "<figcaption>A caption</figcaption>" in text


def test_latex_is_escaped_with_deviations_as_indices(evil_table):
    class Part:
        name, title, sample, view = "x", EVIL, "", type("V", (), {"tables": (evil_table, evil_table)})

    plan = type("P", (), {"title": "t", "command": "c"})
    text = render("tables.tex.j2", plan=plan, sections=[Part])
    assert r"\begin{tabular}{lcc}" in text
    assert r"$\mathbf{85.1}_{\pm0.3}$" in text
    assert "$-2.0$" in text
    assert text.count(r"\end{table}") == 2
    assert re.findall(r"\\label{(.*)}", text) == ["tab:x", "tab:x-2"]
    escaped = latex(EVIL)
    assert not re.search(r"(?<!\\)[&%_#]", escaped)
    assert r"\textbackslash{}end\{table\}" in escaped
    body = text.partition("xelatex.")[2].replace(escaped, "").replace(r"\\", "")
    assert not re.search(r"[%#]", body)

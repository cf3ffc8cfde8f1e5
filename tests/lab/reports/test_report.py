"""A whole folder into a whole report: every view, gaps, failures, corrupt records."""

import ast
import csv
import re
import sqlite3
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import domainadaptor.lab.reports
from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.records.plans import PaperNumbers
from domainadaptor.lab.reports.report import build, publish, write
from tests.lab.reports.folder import DOMAINS, Folder, failing, planned_row, table
from tests.lab.reports.measurements import VALUES
from tests.lab.reports.trainings import training

EVIL = 'a|b <script>alert("1")</script> & 50_000 %'
REASON = "not enough memory: 64 images of 64x64 need 3.2 GB, 1.9 GB are free"


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.ids, self.sources, self.open, self.text = set(), [], [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.add(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if "href" in found else []
        self.sources += [found["src"]] if "src" in found else []
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if self.open[-1:] != ["style"] else ""


def everything(path):
    """A folder with every view, the paper's numbers, gaps, failures and a corrupt record."""
    made = Folder(path, images=64)
    methods = (("DeepAll", "source", "deepall"), ("Tent", "tent", "tent"), ("AdaMixBN", "adamixbn", None),
               ("DomainAdaptor-T", "domainadaptor-t", "domainadaptor-t"))  # fmt: skip
    rows = [made.row(label, method, paper=paper, group="all") for label, method, paper in methods]
    late = made.row("SKD", "domainadaptor-skd", keep=False, group="all")
    bad = [made.add(failing(made.record(["sketch"], "domainadaptor-t", s, gain=0.2), REASON)) for s in range(3)]
    broken = planned_row("FSDCL + T", {"sketch": [[record] for record in bad]})
    paper = PaperNumbers(table="comparison", backbone="resnet18", columns={"mean": "PACS"})
    made.plan("comparison", [table("PACS at 64x64, ResNet-20", rows, paper=paper)], title="Comparison",
              about="On the *same* checkpoints.", remarks=("Tent is **reset** before each batch.",))  # fmt: skip
    made.plan("gaps", [table("Missing and failed", [rows[0], late, broken])])
    made.plan("time", [table(f"As {name}", rows, show=name) for name in ("time", "details", "price", "alpha")])
    sizes = ["1", "8", "64"]
    cells = {size: [[made.add(made.record(["sketch"], "tent", batch_size=int(size)))]] for size in sizes}
    made.plan("curves", [table("Batch size", [planned_row("Tent", cells)], sizes, show="accuracy-curve", mean=False)])
    stream = planned_row("Tent", {"PACS": [[made.add(made.record(DOMAINS, "tent", s, stream=True))] for s in (0, 1)]})
    made.plan("continual", [table("One domain after the other", [stream], ["PACS"], show="segments", mean=False)])
    rng = np.random.default_rng(0)
    measured = [
        table(name, [planned_row("x", {d: [[made.measurement(name, values(rng), d)]] for d in ("photo", "sketch")})],
              ["photo", "sketch"], show=name, mean=False)
        for name, values in VALUES.items()
    ]  # fmt: skip
    made.plan("statistics", [*measured, table("From another version", [], show="pie-chart")])
    made.save()
    with sqlite3.connect(path / "results.sqlite") as db:
        db.execute("INSERT INTO entries VALUES ('evaluation', 'broken', '{', '')")
    db.close()
    (path / "runs" / "a-run").mkdir(parents=True)
    (path / "runs" / "a-run" / "record.json").write_text(training("c", 50.0).to_json())
    return made


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("results")
    everything(path)
    found = build(path)
    return path, found, write(found, path / "out")


def test_the_page_stands_alone_and_is_well_formed(written):
    path, _, _ = written
    text = (path / "out" / "index.html").read_text()
    page = Page(text)
    assert page.open == []
    assert not page.tags & {"script", "link", "iframe", "object", "base"}
    assert page.sources
    assert all(source.startswith("data:image/") for source in page.sources)
    assert not re.search(r"url\(|@import", text)
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_the_page_names_every_experiment_gap_failure_and_corrupt_record(written):
    path, found, _ = written
    text = Page((path / "out" / "index.html").read_text()).text
    for chapter in found.chapters:
        assert chapter.plan.title in text
        assert all(section.title in text for section in chapter.sections)
    assert "Record broken is corrupt" in text
    assert REASON in text
    assert "unknown view 'pie-chart'" in text
    assert "domainadaptor train pacs --target sketch --size 64 --seed 2" in text
    assert "AMD EPYC, x86_64, cpu, 2 threads" in text
    assert "Trained networks" in text


def test_problems_are_one_line_each(written):
    _, found, _ = written
    corrupt, view = found.problems()
    assert "broken" in corrupt
    assert "pie-chart" in view


def test_every_figure_is_written_as_png_and_svg(written):
    path, found, _ = written
    drawn = {figure.name for figure in found.figures()}
    assert {"time", "time-table-4", "curves", "continual", "statistics-table-3",
            "statistics-table-4-temperature"} <= drawn  # fmt: skip
    for name in drawn:
        with Image.open(path / "out" / "figures" / f"{name}.png") as picture:
            assert min(picture.size) > 150
        assert ElementTree.parse(path / "out" / "figures" / f"{name}.svg").getroot().tag.endswith("svg")
    markdown = (path / "out" / "statistics.md").read_text()
    links = re.findall(r"\]\((figures/[^)]+)\)", markdown)
    assert len(links) == 3
    assert all((path / "out" / link).is_file() for link in links)


def test_documents_link_each_other_and_the_csv_has_all_numbers(written):
    path, found, _ = written
    for chapter in found.chapters:
        for ending in ("md", "tex"):
            assert (path / "out" / f"{chapter.plan.name}.{ending}").stat().st_size > 50
    listed = (path / "out" / "index.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", listed)
    assert links == [*(f"{chapter.plan.name}.md" for chapter in found.chapters), "training.md"]
    lacking = [chapter.plan.name for chapter in found.chapters if chapter.gaps()]
    assert lacking == re.findall(r"\]\((.*)\.md\).*runs missing", listed) != []
    with (path / "out" / "results.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["experiment"] for line in lines} == {chapter.plan.name for chapter in found.chapters}
    numbers = [number for c in found.chapters for s in c.sections for number in s.view.numbers]
    assert [float(line["value"] or "nan") for line in lines] == pytest.approx(
        [np.nan if number.value is None else number.value for number in numbers], rel=1e-12, nan_ok=True
    )
    assert {"done", "failed", "missing"} == {line["state"] for line in lines}
    with (path / "out" / "details.csv").open(newline="") as file:
        assert {"photo", "sketch"} <= {line["domain"] for line in csv.DictReader(file)}


def test_what_is_published_is_the_markdown_one_csv_and_the_named_figures(written, tmp_path):
    path, found, _ = written
    files = {file.relative_to(tmp_path).as_posix() for file in publish(found, tmp_path, ["curves"])}
    documents = {f"{chapter.plan.name}.md" for chapter in found.chapters} | {"index.md", "training.md"}
    assert files == documents | {"results.csv", "figures/curves.png"}
    assert "figures/" not in (tmp_path / "statistics.md").read_text()
    assert "](figures/curves.png)" in (tmp_path / "curves.md").read_text()
    assert (tmp_path / "results.csv").read_bytes() == (path / "out" / "results.csv").read_bytes()
    with pytest.raises(BadOption, match="did you mean 'curves'"):
        publish(found, tmp_path, ["curve"])


def test_records_without_a_plan_are_tables_too(tmp_path):
    made = Folder(tmp_path, images=20)
    for method in ("source", "tent"):
        for domain in ("photo", "sketch"):
            made.add(made.record([domain], method))
    made.add(made.record(["photo"], "tent", 1))  # of another network with the same name
    made.add(made.record(["photo"], "tent", 0, options={"lr": 0.5}))
    made.add(made.record(["photo", "sketch"], "tent", 0, stream=True))
    made.save()
    (chapter,) = build(tmp_path).chapters
    stream, other, first = sorted(
        chapter.sections, key=lambda section: ("leave-one-out" in section.title, len(section.view.tables[0].columns))
    )
    assert first.title == "testbed on pacs: leave-one-out"
    assert [line.label for line in other.view.tables[0].lines] == ["tent"]
    lines = {line.label: line.cells for line in first.view.tables[0].lines}
    assert set(lines) == {"source", "tent", "tent, lr 0.5"}
    right = made.record(["photo"], "tent", 0).scores["photo"].right
    assert lines["tent"][0] == f"{100 * right / 20:.1f}", "not averaged with the other network's"
    assert stream.view.tables[0].columns == ("photo", "sketch", "all")


def test_records_beside_those_of_a_plan_are_not_lost(tmp_path):
    made = Folder(tmp_path, images=20)
    made.plan("x", [table("t", [made.row("Tent", "tent", ["photo"], seeds=(0,))], ["photo"])])
    made.add(made.record(["sketch"], "lame"))
    made.measurement("statistics-variance", {"variance": 1.25, "layers": {"a": 1.0, "b": 1.5}})
    made.save()
    planned, adhoc = build(tmp_path).chapters
    assert planned.plan.name == "x"
    titles = sorted(section.title.partition(": ")[2] for section in adhoc.sections)
    assert titles == ["leave-one-out", "statistics-variance"]
    assert not any(section.view.problem for section in adhoc.sections)


def test_labels_from_records_stay_text(tmp_path):
    made = Folder(tmp_path, images=20)
    row = made.row(EVIL, "tent", ["sketch"], seeds=(0,), group=EVIL)
    tables = [table(EVIL, [row], ["sketch"], show="accuracy-curve", sample=EVIL)]
    made.plan("x", tables, title=EVIL, about=EVIL, remarks=(EVIL,))
    made.save()
    write(build(tmp_path), tmp_path)
    page = Page((tmp_path / "index.html").read_text())
    assert "script" not in page.tags
    assert page.text.count(EVIL) >= 6
    assert "<script>" not in (tmp_path / "x.md").read_text().replace(r"\<script\>", "")


def test_names_from_records_are_no_formulas_in_csv_files(tmp_path):
    made = Folder(tmp_path, images=20)
    row = made.row("=cmd|'/c calc'!A1", "tent", ["sketch"], seeds=(0,), group="@SUM(1)")
    made.plan("x", [table("+1", [row], ["sketch"])])
    made.save()
    write(build(tmp_path), tmp_path)
    for name in ("results.csv", "details.csv"):
        with (tmp_path / name).open(newline="") as file:
            lines = list(csv.DictReader(file))
        assert {(line["table"], line["group"], line["row"]) for line in lines} == {
            ("'+1", "'@SUM(1)", "'=cmd|'/c calc'!A1")
        }
    assert all(float(line["value"]) >= 0 for line in lines), "numbers stay numbers"


def test_the_same_records_give_the_same_bytes(tmp_path):
    made = Folder(tmp_path / "a", images=20)
    made.plan("x", [table("t", [made.row("AdaMixBN", "adamixbn", seeds=(0,))], show="alpha")])
    made.save()
    for place in ("b", "c"):
        write(build(tmp_path / "a"), tmp_path / place)
    files = [path.relative_to(tmp_path / "b") for path in (tmp_path / "b").rglob("*.*")]
    assert len(files) == 8
    assert all((tmp_path / "b" / name).read_bytes() == (tmp_path / "c" / name).read_bytes() for name in files)


def test_a_folder_without_records_is_an_error(tmp_path):
    with pytest.raises(BadFile, match="no records in"):
        build(tmp_path)
    with pytest.raises(BadFile, match="no folder at"):
        build(tmp_path / "nowhere")
    (tmp_path / "record.json").write_text("{")
    with pytest.raises(BadFile, match=r"record\.json is not a training record"):
        build(tmp_path)


def test_reports_import_no_torch():
    for path in Path(domainadaptor.lab.reports.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & {"torch", "torchvision", "timm"}, path

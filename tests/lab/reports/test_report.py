"""A whole folder into a whole report: every show, gaps, failures, damage."""

import ast
import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import domainadaptor.lab.reports
from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.reports import report as reports
from domainadaptor.lab.reports.figures.canvas import lighter
from domainadaptor.lab.reports.report import as_json, build, write
from tests.lab.reports.folder import CLASSES, DOMAINS, Folder, table, whole_folder
from tests.lab.reports.test_training import record as training_record

EVIL = 'a|b <script>alert("1")</script> & 50_000 %'


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


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("results")
    whole_folder(path, images=64)
    (path / "runs").mkdir()
    (path / "runs" / "record.json").write_text(json.dumps(training_record("c", 50.0)))
    picture = Image.new("RGB", (30, 20), "red")
    found = build(path, read=lambda run, domain, name: picture if domain == "sketch" else None)
    return path, found, write(found, path)


def test_the_page_stands_alone_and_is_well_formed(written):
    path, _, _ = written
    text = (path / "index.html").read_text()
    page = Page(text)
    assert page.open == []
    assert not page.tags & {"script", "link", "iframe", "object", "base"}
    assert page.sources
    assert all(source.startswith("data:image/") for source in page.sources)
    assert not re.search(r"url\(|@import", text)
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_the_page_names_every_experiment_gap_failure_and_damage(written):
    path, found, _ = written
    text = Page((path / "index.html").read_text()).text
    for chapter in found.chapters:
        assert chapter.plan.title in text
        assert all(section.title in text for section in chapter.sections)
    assert "records/broken.json" in text
    assert "not enough memory: 64 images" in text
    assert "--method domainadaptor-skd" in text
    assert "'pie-chart', which is not known" in text
    assert "domainadaptor train pacs --target sketch --size 64 --seed 2" in text
    assert "AMD EPYC, x86_64, cpu, 2 threads" in text
    assert "Trained networks" in text


def test_problems_are_one_line_each(written):
    _, found, _ = written
    said = found.problems()
    assert len(said) == 2
    assert "broken.json" in said[0]
    assert "pie-chart" in said[1]


def test_every_figure_is_a_picture_twice(written):
    path, found, files = written
    drawn = {figure.name for chapter in found.chapters for s in chapter.sections for figure in s.figures} | {"training"}
    assert {
        "comparison-changed",
        "comparison-confusion",
        "alpha",
        "curves",
        "curves-table-2",
        "time",
        "continual",
    } <= drawn
    for name in drawn:
        with Image.open(path / "figures" / f"{name}.png") as picture:
            assert min(picture.size) > 200
        assert ElementTree.parse(path / "figures" / f"{name}.svg").getroot().tag.endswith("svg")
    assert {f.name for f in files} >= {f"{name}.{ending}" for name in drawn for ending in ("png", "svg")}
    markdown = (path / "comparison.md").read_text()
    assert all((path / link).is_file() for link in re.findall(r"\]\((figures/[^)]+)\)", markdown))


def test_experiments_are_written_in_three_formats(written):
    path, found, _ = written
    for chapter in found.chapters:
        for ending in ("md", "csv", "tex"):
            assert (path / f"{chapter.plan.name}.{ending}").stat().st_size > 50
    assert "### pacs" in (path / "training.md").read_text()
    listed = (path / "index.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", listed)
    assert links == [*(f"{chapter.plan.name}.md" for chapter in found.chapters), "training.md"]
    assert all((path / link).is_file() for link in links)
    lacking = [c.plan.name for c in found.chapters if any(s.shown.gaps for s in c.sections)]
    assert lacking == re.findall(r"\]\((.*)\.md\).*cells to run", listed) != []


def test_details_have_every_domain_and_class(written):
    path, found, _ = written
    chapter = next(c for c in found.chapters if c.plan.name == "comparison")
    with (path / "details" / "comparison.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    records = {p.stem: json.loads(p.read_text()) for p in (path / "records").glob("*.json") if p.stem != "broken"}
    row = chapter.plan.tables[0].rows[0]
    own = [records[wanted.id]["scores"]["sketch"] for seed in row.cells["sketch"] for wanted in seed]
    (line,) = [each for each in lines if (each["table"], each["row"], each["domain"]) ==
               (chapter.plan.tables[0].title, row.label, "sketch")]  # fmt: skip
    assert float(line["images"]) == sum(score["images"] for score in own)
    assert float(line["better"]) == pytest.approx(100 * sum(s["better"] for s in own) / float(line["images"]), abs=1e-4)
    first = [score["confusion"][0] for score in own]
    literal = 100 * sum(counts[0] for counts in first) / sum(map(sum, first))
    assert float(line[f"{CLASSES[0]} after"]) == pytest.approx(literal, abs=1e-4)


def test_records_without_a_plan_are_tables_too(tmp_path):
    made = Folder(tmp_path, images=20)
    for method in ("source", "tent"):
        for domain in ("photo", "sketch"):
            made.write(made.record([domain], method, 0))
    made.write(made.record(["photo"], "tent", 1))  # of another network with the same name
    made.write(made.record(["photo"], "tent", 0, options={"lr": 0.5}))
    made.write(made.record(["photo", "sketch"], "tent", 0, segments=True))
    found = build(tmp_path)
    files = write(found, tmp_path / "out")
    assert {"evaluations.md", "index.html"} <= {path.name for path in files}
    (chapter,) = found.chapters
    stream, other, first = sorted(
        chapter.sections, key=lambda section: ("leave-one-out" in section.title, len(section.shown.grids[0].columns))
    )
    assert first.title == "testbed on pacs: leave-one-out"
    assert [line.label for line in other.shown.grids[0].lines] == ["tent"]
    lines = {line.label: [entry.text for entry in line.entries] for line in first.shown.grids[0].lines}
    assert set(lines) == {"source", "tent", "tent, lr 0.5"}
    right = made.record(["photo"], "tent", 0)["scores"]["photo"]["right"]
    assert lines["tent"][0].strip("*") == f"{100 * right / 20:.1f}", "not averaged with the other network's"
    assert stream.shown.grids[0].columns == ("photo", "sketch", "all")
    assert all("not on this machine" in line for line in found.problems())


def test_records_beside_those_of_a_plan_are_not_lost(tmp_path):
    made = Folder(tmp_path, images=20)
    made.plan("x", [table("t", [made.row("Tent", "tent", ["photo"], seeds=(0,))], ["photo"])])
    made.write(made.record(["sketch"], "lame"))
    made.measurement("statistics-variance", {"variance": 1.25, "layers": {"a": 1.0, "b": 1.5}})
    planned, loose = build(tmp_path).chapters
    assert planned.plan.name == "x"
    titles = [section.title for section in loose.sections]
    assert sorted(title.partition(": ")[2] for title in titles) == ["leave-one-out", "statistics-variance"]
    assert not any(section.shown.problem for section in loose.sections)


def test_a_stream_of_mixed_images_is_shown_domain_by_domain(tmp_path):
    made = Folder(tmp_path, images=20)
    record = made.record(["photo", "sketch"], "tent")
    whole = {"name": "photo+sketch", "fresh": True, "images": 40}
    whole |= {key: sum(score[key] for score in record["scores"].values()) for key in ("right", "source_right")}
    run = {**record["run"], "protocol": "mixed-images"}
    made.write({**record, "run": run, "segments": [whole]})
    ((section,),) = (chapter.sections for chapter in build(tmp_path).chapters)
    (grid,) = section.shown.grids
    assert grid.columns == ("photo", "sketch", "all")
    tent = [entry.text.strip("*") for entry in grid.lines[-1].entries]
    rights = [record["scores"][domain]["right"] for domain in ("photo", "sketch")]
    assert tent == [f"{100 * right / 20:.1f}" for right in rights] + [f"{100 * sum(rights) / 40:.1f}"]


def test_json_has_the_same_numbers(written):
    _, found, files = written
    value = json.loads(json.dumps(as_json(found, files)))
    numbers = value["experiments"]["comparison"]["tables"][0]["numbers"]
    assert len(numbers) == 8 * 5
    assert numbers[4]["difference"] == pytest.approx(numbers[4]["value"] - 79.44)
    assert "records/broken.json" in value["damaged"]


def test_labels_from_records_stay_text(tmp_path):
    made = Folder(tmp_path, images=20)
    row = made.row(EVIL, "tent", ["sketch"], seeds=(0,), group=EVIL)
    made.plan(
        "x",
        [table(EVIL, [row], ["sketch"], show="accuracy-curve", sample=EVIL)],
        title=EVIL,
        about=EVIL,
        remarks=[EVIL],
    )
    found = build(tmp_path)
    write(found, tmp_path)
    page = Page((tmp_path / "index.html").read_text())
    assert "script" not in page.tags
    assert page.text.count(EVIL) >= 6
    assert "<script>" not in (tmp_path / "x.md").read_text().replace(r"\<script\>", "")


def test_the_same_records_give_the_same_bytes(tmp_path):
    made = Folder(tmp_path / "a", images=20)
    made.plan("x", [table("t", [made.row("AdaMixBN", "adamixbn", seeds=(0,))], show="alpha")])
    for place in ("b", "c"):
        write(build(tmp_path / "a"), tmp_path / place)
    files = [path.relative_to(tmp_path / "b") for path in (tmp_path / "b").rglob("*.*")]
    assert len(files) == 8
    assert all((tmp_path / "b" / name).read_bytes() == (tmp_path / "c" / name).read_bytes() for name in files)


def test_only_one_experiment_has_a_page_of_its_own(tmp_path):
    made = Folder(tmp_path, images=20)
    for name in ("one", "two"):
        made.plan(name, [table("t", [made.row("Tent", "tent", ["sketch"], keep=False)], ["sketch"])])
    files = write(build(tmp_path, only="two"), tmp_path / "out")
    assert {path.relative_to(tmp_path / "out").as_posix() for path in files} == {
        "two.html",
        "two.md",
        "two.csv",
        "two.tex",
    }
    with pytest.raises(BadOption, match="did you mean 'two'"):
        build(tmp_path, only="twoo")


def test_a_folder_without_a_plan_is_an_error(tmp_path):
    with pytest.raises(BadFile, match="no plan"):
        build(tmp_path)
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "x.json").write_text("{")
    with pytest.raises(BadFile, match=r"plans/x\.json"):
        build(tmp_path)


def test_without_matplotlib_there_are_tables_and_a_word_about_figures(tmp_path, monkeypatch):
    made = Folder(tmp_path, images=20)
    made.plan("x", [table("t", [made.row("Tent", "tent", seeds=(0,))])])
    monkeypatch.setattr(reports, "can_draw", lambda: False)
    files = write(build(tmp_path), tmp_path)
    assert not [path for path in files if path.suffix in (".png", ".svg")]
    assert "domainadaptor[report]" in (tmp_path / "index.html").read_text()


def test_where_images_are_not_there_the_page_says_so_once(tmp_path):
    made = Folder(tmp_path, images=30)
    for name, method in (("one", "tent"), ("two", "slr")):
        made.plan(name, [table("t", [made.row(method, method, seeds=(0,))])])
    found = build(tmp_path)
    notes = [section.note for chapter in found.chapters for section in chapter.sections]
    assert "--root" in notes[0]
    assert notes[1] == ""
    assert found.problems() == notes[:1]


def test_the_closer_look_is_at_the_best_method_once(tmp_path):
    made = Folder(tmp_path, images=60)
    rows = [made.row("DeepAll", "source"), made.row("worse", "tent", gain=0.1), made.row("best", "tent", gain=0.4)]
    made.plan("one", [table("t", rows)])
    made.plan("two", [table("t", rows)])
    asked = []
    found = build(tmp_path, read=lambda run, domain, name: asked.append((domain, name)) or Image.new("RGB", (4, 4)))
    captions = [[f.caption for s in chapter.sections for f in s.figures] for chapter in found.chapters]
    assert [caption.partition(":")[0] for caption in captions[0]] == ["best", "best"]
    assert captions[1] == []
    assert len(asked) == len(set(asked)) == 12
    assert {domain for domain, _ in asked} == set(DOMAINS)


def test_pictures_that_photographs_make_large_keep_their_look_in_fewer_bytes():
    noise = BytesIO()
    Image.effect_noise((900, 900), 80).convert("RGB").rotate(30, fillcolor=(0, 114, 178)).save(noise, format="PNG")
    small = lighter(noise.getvalue())
    assert len(small) < 0.8 * len(noise.getvalue())
    before, after = (np.asarray(Image.open(BytesIO(png)).convert("RGB"), float) for png in (noise.getvalue(), small))
    assert np.abs(before - after).mean() < 3
    assert lighter(small[:100]) == small[:100]  # light already: not even opened


def test_reports_import_no_torch():
    for path in Path(domainadaptor.lab.reports.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & {"torch", "torchvision", "timm", "pandas"}, path

"""What is tracked in docs/results is what the records give, and small."""

import re
import sys
from pathlib import Path

import pytest

from domainadaptor.lab.experiments.networks import NetworkEntry, Networks
from domainadaptor.lab.experiments.spec import FILES, NETWORKS
from domainadaptor.lab.records.store import EXPORT, Store
from domainadaptor.lab.reports.report import ResultsReport, publish
from domainadaptor.lab.reports.sections import chapters
from domainadaptor.lab.reports.training import training_tables

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"
CHOSEN = ("comparison", "few-data", "mixed-domains", "statistics-distances", "time")

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="docs/results is not part of the source distribution")


@pytest.fixture(scope="module")
def kept():
    notes = []
    with Store(RESULTS, notes.append, readonly=True) as store:
        content = store.runs(), {plan.name: plan for plan in store.plans()}, store.trainings()
    assert notes == []
    return content


def test_the_records_give_the_tracked_files(kept, tmp_path):
    records, plans, trainings = kept
    found = chapters([plans[name] for name in CHOSEN], records)
    publish(ResultsReport(tuple(found), training_tables(trainings)), tmp_path)
    for name in (*CHOSEN, "training"):
        tracked = (RESULTS / f"{name}.md").read_text()
        assert (tmp_path / f"{name}.md").read_text() == re.sub(r"!\[.*\]\(figures/.*\)\n\n", "", tracked), (
            "make results"
        )
    tracked = (RESULTS / "results.csv").read_text().splitlines()
    for line in (tmp_path / "results.csv").read_text().splitlines():
        assert line in tracked


def test_plans_have_the_words_of_the_experiments(kept):
    for name, plan in kept[1].items():
        words = tomllib.loads((FILES / f"{name}.toml").read_text())
        assert plan.title == words["title"], "make results"
        assert plan.about == words["about"]
        assert list(plan.remarks) == words.get("remarks", [])


def test_times_in_experiment_files_were_measured(kept):
    records, plans, _ = kept
    for name, plan in plans.items():
        runs = {run.id for table in plan.tables for run in table.runs()} & set(records)
        minutes = tomllib.loads((FILES / f"{name}.toml").read_text()).get("minutes", 0)
        assert minutes == pytest.approx(sum(records[run].took for run in runs) / 60, abs=0.11), name


def test_times_of_trainings_were_measured(kept):
    tables = tomllib.loads((FILES / NETWORKS).read_text())
    networks = Networks({name: NetworkEntry.model_validate(table) for name, table in tables.items()}, ROOT)
    left = {"seed", "sources", "data", "start", "weights"}
    for name, entry in networks.entries.items():
        if entry.minutes is not None:
            wanted = networks.request(name, "photo", 0).settings.model_dump(exclude=left)
            own = [
                record
                for record in kept[2]
                if record.recipe.model_dump(exclude=left) == wanted
                and (len(record.recipe.sources) == 1) == bool(entry.sources)
                and record.recipe.weights.startswith("pacs-") == bool(entry.start)
            ]
            minutes = [len(r.epochs) * min(epoch.seconds for epoch in r.epochs) / 60 for r in own]
            assert entry.minutes == pytest.approx(sum(minutes) / len(minutes), abs=0.06), name


def test_tracked_results_are_few_small_and_linked():
    files = [path for path in RESULTS.rglob("*") if path.is_file() and not path.name.startswith("results.sqlite")]
    assert len(files) < 200
    assert sum(path.stat().st_size for path in files) < 8_000_000
    kinds = {path.relative_to(RESULTS).as_posix() for path in files if path.suffix in (".csv", ".gz", ".html", ".tex")}
    assert kinds == {"results.csv", EXPORT}
    figures = [path for path in files if path.suffix in (".png", ".svg")]
    assert len(figures) <= 10
    assert all(path.stat().st_size < 150_000 for path in figures)
    linked = {name for path in RESULTS.glob("*.md") for name in re.findall(r"\(figures/(.*?)\)", path.read_text())}
    assert linked == {path.name for path in figures}

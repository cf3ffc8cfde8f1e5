import math
import re

import pytest

from domainadaptor.lab.records.plans import PaperNumbers, PlannedRun
from domainadaptor.lab.reports.caveats import caveats
from domainadaptor.lab.reports.numbers import number, signed
from tests.lab.reports.folder import DOMAINS, changed, failing, planned_row, selected, shown, table

PAPER = PaperNumbers(table="comparison", backbone="resnet18", columns={"mean": "PACS"})


def noted(made, planned):
    return caveats(selected(made, planned))


def uncertain(notes):
    (sentence,) = [text for text in notes if text.startswith("One seed")]
    return [float(found) for found in re.findall(r"(?:about|at most) (\d+\.\d)", sentence)]


def on_dataset(made, planned, name):
    """The same table from records of another data set."""
    rows = []
    for row in planned.rows:
        cells = {
            column: [[made.add(changed(made.records[run.id], run__dataset=name)) for run in seed] for seed in seeds]
            for column, seeds in row.cells.items()
        }
        rows.append(planned_row(row.label, cells))
    return planned.model_copy(update={"rows": tuple(rows)})


def test_numbers_that_the_paper_does_not_have_are_not_mentioned(made):
    rows = [made.row("tent", "tent", seeds=(0,))]
    for name, mentioned in (("comparison", 1), ("table_99", 0)):
        planned = table("t", rows, paper=PaperNumbers(table=name, backbone="resnet18"))
        assert sum("The paper's numbers are for" in text for text in noted(made, planned)) == mentioned


def test_runs_without_an_id_are_counted_one_by_one(made):
    record = made.add(made.record(["photo"], "tent"))
    unknown, late = PlannedRun(), PlannedRun(id="0123")
    rows = [
        planned_row("a", {"photo": [[record], [unknown]], "sketch": [[unknown], [unknown]]}),
        planned_row("the same", {"photo": [[record]], "sketch": [[late], [late]]}),
    ]
    notes = noted(made, table("t", rows, ["photo", "sketch"]))
    assert notes[0] == "Incomplete: 1 of 5 runs are done, 4 not run yet."


def test_reasons_are_given_once_with_their_cells(made):
    run = PlannedRun(missing="no checkpoint at 'mine.safetensors'")
    failed = made.add(failing(made.record(["photo"], "tent"), "No memory."))
    rows = [planned_row(name, {"photo": [[failed]], "sketch": [[run], [run]]}) for name in ("a", "b")]
    notes = noted(made, table("t", rows, ["photo", "sketch"]))
    assert "No number for a on photo and 1 more cell: No memory." in notes
    assert "No number for a on sketch and 1 more cell: no checkpoint at 'mine.safetensors'." in notes


def test_a_mean_of_the_same_images_is_no_more_certain_than_one_column(made):
    planned = table("t", [made.row("Tent", "tent", seeds=(0,))])
    shares = [score.right / score.images for record in made.records.values() for score in record.scores.values()]
    errors = [100 * math.sqrt(share * (1 - share) / 40) for share in shares]
    single = sum(sorted(errors)[1:3]) / 2
    independent = math.sqrt(sum(error**2 for error in errors)) / 4
    assert uncertain(noted(made, planned)) == pytest.approx([single, independent], abs=0.051)
    notes = noted(made, on_dataset(made, planned, "cifar10-c"))
    assert uncertain(notes) == pytest.approx([single, sum(errors) / 4], abs=0.051)
    assert any("the same images" in text for text in notes)


def test_domains_that_are_counted_together_show_an_image_once(made):
    records = [made.add(made.record([domain], "tent")) for domain in DOMAINS]
    right = sum(score.right for record in records for score in record.scores.values()) / 160
    planned = table("t", [planned_row("Tent", {"8": [records]})], ["8"], mean=False)
    for chosen, images in ((planned, 160), (on_dataset(made, planned, "corrupted"), 40)):
        expected = 100 * math.sqrt(right * (1 - right) / images)
        assert uncertain(noted(made, chosen)) == pytest.approx([expected], abs=0.051)


def test_harm_fallbacks_and_skipped_images_are_named(made):
    parts = {"fell_back": 2, "notes": ["not finite"], "skipped": {"sketch/a.jpg": "empty"}}
    bad = made.add(changed(made.record(["sketch"], "lame", gain=-0.4), **parts))
    other = made.add(made.record(["photo"], "lame", gain=0.4))
    planned = table("t", [planned_row("LAME", {"sketch": [[bad]], "photo": [[other]]})], ["sketch", "photo"])
    notes = noted(made, planned)
    score = bad.scores["sketch"]
    ours, source = number(100 * score.right / 40), number(100 * score.source_right / 40)
    assert f"Worse than the source model: LAME on sketch ({ours}, source model {source})." in notes
    assert "LAME: the source model answered 2 batches: not finite." in notes
    assert "Unreadable images, not counted (1): sketch/a.jpg." in notes
    assert len(notes) == 4


def test_many_places_are_summed_up_with_the_worst(made):
    row = made.row("LAME", "lame", seeds=(0,), gain=-0.4)
    (text,) = [note for note in noted(made, table("t", [row])) if note.startswith("Worse")]
    losses = {}
    for domain in DOMAINS:
        score = made.records[row.cells[domain][0][0].id].scores[domain]
        losses[score.source_right - score.right] = domain
    assert text.startswith(f"Worse than the source model: LAME on 4 of 4 columns, most on {losses[max(losses)]} (")


def test_several_seeds_need_no_word_on_uncertainty(made):
    assert not [text for text in noted(made, table("t", [made.row("Tent", "tent")])) if text.startswith("One seed")]


def test_notes_on_weights_and_cautions_are_sentences(made):
    content = {"name": "a", "sha256": "0", "seed": 0, "note": "weights of a third party; research only"}
    caution = "dusk is a source of this network: its validation images were taken"
    record = made.add(made.record(["sketch"], "tent", run={"checkpoint": content}, cautions=[caution, caution]))
    notes = noted(made, table("t", [planned_row("Tent", {"sketch": [[record]]})], ["sketch"]))
    assert "About the networks: Weights of a third party; research only." in notes
    assert notes.count(f"D{caution[1:]}.") == 1


def test_gains_are_over_the_same_networks(made):
    rows = [
        made.row("DeepAll", "source", seeds=(0,), paper="deepall"),
        made.row("Tent", "tent", seeds=(0,), paper="tent"),
    ]
    planned = table("t", rows, paper=PAPER)
    means = {found.row: found.value for found in shown(made, planned).numbers if found.column == "mean"}
    gain, theirs = means["Tent"] - means["DeepAll"], 80.59 - 79.44
    (text,) = [note for note in noted(made, planned) if note.startswith("Gain")]
    assert text == f"Gain over DeepAll, mean: Tent {signed(gain)} (paper {signed(theirs)})."
    others = [rows[0], made.row("Tent", "tent", seeds=(1,), paper="tent")]  # other networks
    assert not [note for note in noted(made, table("t", others, paper=PAPER)) if note.startswith("Gain")]

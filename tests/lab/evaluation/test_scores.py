"""Counts against a count by hand."""

import torch

from domainadaptor.lab.evaluation.protocols import ImageRef
from domainadaptor.lab.evaluation.scores import BINS, Tally


def logits_of(*answers, confidence=0.8, classes=3):
    """Logits whose softmax gives the answers the confidence, and the rest what is left."""
    rest = (1 - confidence) / (classes - 1)
    p = torch.full((len(answers), classes), rest, dtype=torch.float64)
    p[range(len(answers)), list(answers)] = confidence
    return p.log()


def test_counts():
    tally = Tally(3)
    labels = [0, 0, 1, 2]
    items = [ImageRef("a", at, label) for at, label in enumerate(labels)]
    names = ["w", "x", "y", "z"]
    tally.add(items, names, logits_of(0, 1, 1, 0), logits_of(0, 0, 0, 0), logits_of(1, 0, 1, 1, confidence=0.5))
    score = tally.score()
    assert (score["images"], score["source_right"], score["before_right"], score["right"]) == (4, 2, 2, 2)
    assert (score["better"], score["worse"], score["changed"]) == (1, 1, 3)
    assert score["confusion"] == [[1, 1, 0], [0, 1, 0], [0, 1, 0]]
    assert score["source_confusion"] == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert score["calibration"][int(0.5 * BINS)] == [4, 2.0, 2]
    assert score["source_calibration"][int(0.8 * BINS)] == [4, 3.2, 2]
    assert sum(row[0] for row in score["calibration"]) == 4
    assert {(e["name"], e["source"], e["adapted"]) for e in score["examples"]} == {
        ("w", 0, 1),
        ("x", 1, 0),
        ("z", 0, 1),
    }


def test_batches_add_up_to_the_whole():
    torch.manual_seed(0)
    source, before, after = (torch.randn(40, 3) for _ in range(3))
    items = [ImageRef("a", at, at % 3) for at in range(40)]
    names = [str(at) for at in range(40)]
    whole, parts = Tally(3), Tally(3)
    whole.add(items, names, source, before, after)
    for at in range(0, 40, 7):
        cut = slice(at, at + 7)
        parts.add(items[cut], names[cut], source[cut], before[cut], after[cut])
    assert whole.score() == parts.score()


def test_a_confidence_of_one_is_in_the_last_bin():
    tally = Tally(2)
    tally.add([ImageRef("a", 0, 0)], ["x"], *([torch.tensor([[1e4, -1e4]])] * 3))
    assert tally.score()["calibration"][-1] == [1, 1.0, 1]


def test_kept_examples_are_of_both_kinds():
    tally = Tally(2)
    items = [ImageRef("a", at, 1) for at in range(40)]
    names = [str(at) for at in range(40)]
    good, bad = torch.tensor([[0.0, 1.0]]).expand(40, 2), torch.tensor([[1.0, 0.0]]).expand(40, 2)
    tally.add(items, names, bad, bad, good)
    tally.add(items, names, good, good, bad)
    kept = [example["adapted"] == example["label"] for example in tally.score()["examples"]]
    assert kept.count(True) == kept.count(False) == 6


def test_many_classes_have_no_confusion():
    tally = Tally(101)
    logits = torch.eye(101)[:2]
    tally.add([ImageRef("a", at, at) for at in range(2)], ["0", "1"], logits, logits, logits)
    assert tally.score()["confusion"] == tally.score()["source_confusion"] == []
    assert tally.score()["right"] == 2

"""The sentences on a run, and when each is written."""

import pytest

from domainadaptor.adaptation.estimate import Signals, expect
from domainadaptor.page.verdict import AnswerPair, chance, judge


def pairs(*groups: tuple[int, str, str, str]) -> list[AnswerPair]:
    return [AnswerPair(*answers) for count, *answers in groups for _ in range(count)]


@pytest.mark.parametrize(("fixed", "spoiled"), [(0, 0), (1, 0), (5, 0), (6, 0), (10, 3), (3, 10), (50, 50), (900, 700)])
def test_chance_is_the_exact_sign_test(fixed, spoiled):
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(fixed, fixed + spoiled).pvalue if fixed + spoiled else 1.0
    assert chance(fixed, spoiled) == pytest.approx(expected, rel=1e-9)


def test_a_clear_gain_is_said_with_the_size_of_the_sample():
    found = judge(pairs((30, "cat", "dog", "dog"), (2, "dog", "cat", "dog"), (68, "cat", "cat", "cat")), 64)
    assert (found.tone, found.headline) == ("good", "Adapting helped.")
    assert "Of 100 images with a known class, 68 + 2" not in found.sentences[0]
    assert found.sentences[0] == (
        "Of 100 images with a known class, 70 were right before adapting and 98 after: "
        "adapting corrected 30 and spoiled 2."
    )
    assert not found.warnings


def test_a_clear_loss_is_said():
    found = judge(pairs((30, "dog", "cat", "dog"), (70, "cat", "cat", "cat")), 64)
    assert (found.tone, found.headline) == ("bad", "Adapting did harm.")


def test_few_changes_are_left_to_chance():
    found = judge(pairs((3, "cat", "dog", "dog"), (97, "cat", "cat", "cat")), 64)
    assert (found.tone, found.headline) == ("open", "No clear difference.")
    assert "Chance alone" in found.sentences[1]


def test_changes_from_wrong_to_wrong_are_no_difference():
    found = judge(pairs((10, "cat", "dog", "bird"), (30, "cat", "cat", "cat")), 64)
    assert found.headline == "Adapting made no difference to the accuracy."


def test_without_labels_nothing_is_claimed():
    found = judge(pairs((5, "cat", "dog", ""), (20, "cat", "cat", ""), (20, "dog", "dog", "")), 45)
    assert (found.tone, found.headline) == ("open", "Adapting changed 5 of 45 answers.")
    assert "cannot be judged" in found.sentences[0]
    assert not found.warnings
    assert judge(pairs((20, "cat", "cat", "")), 20).headline == "Adapting changed no answer."


@pytest.mark.parametrize(("preference", "tone"), [(0.2, "good"), (0.03, "open"), (0.0, "bad")])
def test_without_labels_the_default_method_has_an_expectation(preference, tone):
    changed = pairs((60, "cat", "dog", ""), (140, "cat", "cat", ""), (100, "dog", "dog", ""))
    expected = expect(Signals(300, 0.2, preference, 0.8))
    found = judge(changed, 64, expected=expected)
    assert (found.tone, found.headline) == (tone, expected.headline)
    assert found.sentences == ("It changed 60 of 300 answers.", expected.sentence)
    labeled = pairs((60, "cat", "dog", "dog"))
    assert judge(labeled, 64, expected=expected) == judge(labeled, 64)
    assert "cannot be judged" in judge(changed[50:65], 15, expected=expected).sentences[0]


def test_images_without_a_class_are_counted():
    found = judge(pairs((30, "cat", "cat", "cat"), (1, "cat", "dog", "")), 31)
    assert found.sentences[-1] == "The class of the other 1 image is not known."


def test_one_answer_for_everything_is_a_warning():
    alike = pairs((30, "cat", "dog", ""), (30, "dog", "dog", ""))
    assert "“dog”" in judge(alike, 60).warnings[0]
    assert "do not use" in judge(alike, 60).warnings[0]
    assert not judge(pairs((60, "dog", "dog", "")), 60).warnings  # the source model says the same
    assert not judge(pairs((30, "cat", "dog", "dog"), (30, "dog", "dog", "dog")), 60).warnings  # and it is right


def test_most_answers_changed_is_a_warning_unless_it_helped():
    changed = [("cat", "dog"), ("dog", "cat")]
    without = pairs(*((20, *answers, "") for answers in changed), (10, "cat", "cat", ""))
    assert judge(without, 50).warnings[0].startswith("Most answers changed (40 of 50)")
    assert not judge(pairs(*((20, *answers, answers[1]) for answers in changed)), 40).warnings


def test_small_batches_and_notes_are_warnings():
    found = judge(pairs((4, "cat", "cat", "")), 4, ["the loss is not finite"])
    assert found.warnings[0].startswith("Only 4 images adapted together.")
    assert found.warnings[1] == "the loss is not finite."

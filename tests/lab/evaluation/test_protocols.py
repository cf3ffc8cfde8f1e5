"""Protocols: every image once, in a fixed order, with the resets that they promise."""

from collections import Counter

import pytest

from domainadaptor.errors import BadOption
from domainadaptor.lab.evaluation.protocols import PROTOCOLS, ImageRef, arrange, check_protocol, shuffled


def images(**counts):
    return {
        domain: shuffled([ImageRef(domain, at, at % 3) for at in range(count)], 0, None)
        for domain, count in counts.items()
    }


TWO = images(a=50, b=33)
ONCE = [name for name in PROTOCOLS if name != "continual"]


def flat(segments):
    return [item for segment in segments for batch in segment.batches for item in batch]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_image_comes_once_and_the_last_small_batch_is_kept(name):
    segments = arrange(name, TWO, 8, 0, {})
    assert Counter(flat(segments)) == Counter(item for items in TWO.values() for item in items)
    assert all(1 <= len(batch) <= 8 for segment in segments for batch in segment.batches)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_seed_alone_decides_the_order(name):
    assert arrange(name, TWO, 8, 5, {}) == arrange(name, TWO, 8, 5, {})


@pytest.mark.parametrize("name", ["mixed-batches", "mixed-images"])
def test_another_seed_is_another_order(name):
    assert arrange(name, TWO, 8, 1, {}) != arrange(name, TWO, 8, 2, {})


def test_the_shuffle_follows_the_seed_and_cuts():
    items = [ImageRef("a", at, 0) for at in range(100)]
    assert shuffled(items, 1, 10) == shuffled(items, 1, None)[:10]
    assert shuffled(items, 1, None) != shuffled(items, 2, None)
    assert shuffled(items, 1, None) != items


def test_leave_one_out_forgets_before_each_domain():
    assert [(s.name, s.fresh) for s in arrange("leave-one-out", TWO, 8, 0, {})] == [("a", True), ("b", True)]


def test_few_data_forgets_before_each_subset():
    segments = arrange("few-data", TWO, 8, 0, {"subset": 20})
    assert [sum(map(len, s.batches)) for s in segments] == [20, 20, 10, 20, 13]
    assert all(s.fresh for s in segments)
    assert [item.domain for item in flat(segments)] == ["a"] * 50 + ["b"] * 33


def test_continual_forgets_once_and_may_go_round():
    segments = arrange("continual", TWO, 8, 0, {"rounds": 2})
    assert [s.fresh for s in segments] == [True, False, False, False]
    assert [s.name for s in segments] == ["a 1", "b 1", "a 2", "b 2"]
    assert Counter(flat(segments)) == Counter({item: 2 for items in TWO.values() for item in items})


def test_mixed_batches_are_pure_and_alternate():
    (segment,) = arrange("mixed-batches", TWO, 8, 0, {})
    domains = [{item.domain for item in batch} for batch in segment.batches]
    assert all(len(found) == 1 for found in domains)
    assert domains != sorted(domains, key=min)


def test_mixed_images_share_batches():
    (segment,) = arrange("mixed-images", TWO, 16, 0, {})
    assert any(len({item.domain for item in batch}) == 2 for batch in segment.batches)


def test_sorted_labels():
    for segment in arrange("label-shift", TWO, 8, 0, {}):
        labels = [item.label for batch in segment.batches for item in batch]
        assert labels == sorted(labels)


def test_dirichlet_is_between_sorted_and_shuffled():
    def purity(concentration):
        (segment,) = arrange("label-shift", images(a=600), 20, 0, {"concentration": concentration})
        shares = [max(Counter(item.label for item in batch).values()) / len(batch) for batch in segment.batches]
        return sum(shares) / len(shares)

    assert purity(0.0) > purity(0.05) > purity(100.0) + 0.15
    assert purity(100.0) < 0.55


@pytest.mark.parametrize(("concentration", "share"), [(0.01, 4 / 5), (0.1, 3 / 5), (1.0, 1 / 3), (10.0, 1 / 5)])
def test_the_commonest_class_of_a_batch_has_the_share_that_the_option_promises(concentration, share):
    items = shuffled([ImageRef("a", at, at % 7) for at in range(6400)], 0, None)
    (segment,) = arrange("label-shift", {"a": items}, 64, 0, {"concentration": concentration})
    shares = [max(Counter(item.label for item in batch).values()) / 64 for batch in segment.batches]
    assert sum(shares) / len(shares) == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize("options", [{}, {"concentration": 0.5}])
def test_under_label_shift_a_domain_has_the_same_order_whatever_is_beside_it(options):
    beside = arrange("label-shift", TWO, 8, 0, options)[1]
    assert arrange("label-shift", {"b": TWO["b"]}, 8, 0, options) == [beside]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("leave-one", {}, "leave-one-out"),
        ("few-data", {"subsets": 3}, "subset"),
        ("few-data", {"subset": 0}, "at least 1"),
        ("label-shift", {"concentration": -1}, "concentration"),
    ],
)
def test_what_is_wrong_is_said(name, options, said):
    with pytest.raises(BadOption, match=said):
        check_protocol(name, options)

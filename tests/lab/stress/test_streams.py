import pytest
import torch

from domainadaptor.errors import BadOption
from domainadaptor.lab.stress.streams import HOSTILE, KINDS, ORDINARY, LabeledImages, StreamImages, stream

CLASSES, BATCHES = 5, 40


def labeled(level):
    """Ten images of each class, told by their values: the domain before the point, class and number after it."""
    numbers = torch.arange(10 * CLASSES)
    labels = numbers % CLASSES
    return LabeledImages((level + labels / 10 + numbers / 1000).view(-1, 1, 1, 1).expand(-1, 3, 4, 4), labels)


POOL = StreamImages({"a": labeled(1.0), "b": labeled(2.0), "c": labeled(3.0)}, "b", lambda values: values + 100)


def batches(kind, seed=0, size=8):
    return list(stream(kind, POOL, batches=BATCHES, batch_size=size, seed=seed))


def seen(batch):
    """Domains and classes of a batch."""
    tenths = (10 * batch[:, 0, 0, 0] + 1e-4).floor().int()
    return set((tenths // 10).tolist()), set((tenths % 10).tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_decides_and_no_two_batches_are_alike(kind):
    first, again, other = batches(kind), batches(kind), batches(kind, seed=1)
    assert len(first) == BATCHES
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(first, other, strict=True))
    longer = list(stream(kind, POOL, batches=2 * BATCHES, batch_size=8, seed=0))
    assert len(longer) == 2 * BATCHES
    wanted = {(1, 3, 4, 4), (2, 3, 4, 4)} if kind == "tiny" else {(8, 3, 4, 4)}
    assert {tuple(x.shape) for x in first} == wanted


def test_one_class():
    found = [seen(x) for x in batches("one-class")]
    assert len({tuple(classes) for _, classes in found}) == 1
    assert all(domains == {2} and len(classes) == 1 for domains, classes in found)
    assert len({tuple(seen(batches("one-class", seed)[0])[1]) for seed in range(10)}) > 1


def test_sorted_labels():
    assert [seen(x) for x in batches("sorted")] == [({2}, {at * CLASSES // BATCHES}) for at in range(BATCHES)]


def test_noise_is_of_the_whole_range_everywhere():
    values = torch.cat(batches("noise", size=64)) - 100
    assert values.min() >= 0
    assert values.max() <= 1
    # A uniform law has mean 1/2 and variance 1/12; 4 deviations of what so many values estimate.
    count = values.numel()
    assert abs(values.mean() - 1 / 2) < 4 * (1 / 12 / count) ** 0.5
    assert abs(values.var() - 1 / 12) < 4 * (1 / 180 / count) ** 0.5


def test_constant_images():
    found = batches("constant")
    for x in found:
        assert torch.equal(x, x[:1, :, :1, :1].expand_as(x))
        assert 100 <= x.min() <= x.max() <= 101
    assert len({tuple(x[0, :, 0, 0].tolist()) for x in found}) == BATCHES


def test_alternating_domains_and_one_after_the_other():
    assert [seen(x)[0] for x in batches("alternating")] == [{1 + at % 3} for at in range(BATCHES)]
    assert [seen(x)[0] for x in batches("domains")] == [{1 + at * 3 // BATCHES} for at in range(BATCHES)]


def test_tiny_and_shuffled_batches():
    assert [len(x) for x in batches("tiny")] == [1, 2] * (BATCHES // 2)
    assert {tuple(seen(x)[0]) for x in [*batches("tiny"), *batches("shuffled")]} == {(2,)}
    assert set.union(*(seen(x)[1] for x in batches("shuffled"))) == set(range(CLASSES))
    assert all(len(seen(x)[1]) > 1 for x in batches("shuffled"))


def test_six_kinds_are_hostile():
    assert len(HOSTILE) == 6
    assert set(HOSTILE) | set(ORDINARY) == set(KINDS)
    with pytest.raises(BadOption, match="did you mean 'noise'"):
        next(stream("noisy", POOL, batches=1, batch_size=1, seed=0))

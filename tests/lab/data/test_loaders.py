import itertools

import pytest
import torch

from domainadaptor.errors import BadFile
from domainadaptor.lab.data import loaders
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.loaders import TrainingBatches, ordered_batches
from domainadaptor.lab.data.preprocessing import squashed
from tests.lab.data.trees import plain_domain

BARE = squashed(8, mean=(0, 0, 0), std=(1, 1, 1))


def sources(*counts, **more):
    return [DomainImages(plain_domain(f"d{n}", count, **more), BARE) for n, count in enumerate(counts)]


def seen(images):
    """Which images these are: their red is their number."""
    return (images[:, 0, 0, 0] * 255).round().int().tolist()


@pytest.fixture
def untouched(monkeypatch):
    monkeypatch.setattr(loaders, "augment", lambda images, size, draw: images)


def same(one, other):
    return all(
        torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels) and a.domain == b.domain
        for a, b in zip(one, other, strict=True)
    )


def test_a_step_follows_from_seed_epoch_and_step_alone():
    made = TrainingBatches(sources(20, 13), BARE, 8, seed=5)
    epochs = [list(made.epoch(epoch)) for epoch in range(3)]
    # Asked for in another order, by another object, half of it only.
    other = TrainingBatches(sources(20, 13), BARE, 8, seed=5)
    late = list(itertools.islice(other.epoch(2), 2))
    assert all(same(a, b) for a, b in zip(late, epochs[2], strict=False))
    assert all(same(a, b) for a, b in zip(other.epoch(0), epochs[0], strict=True))
    assert not same(epochs[0][0], epochs[1][0])
    assert not same(epochs[0][0], next(TrainingBatches(sources(20, 13), BARE, 8, seed=6).epoch(0)))


def test_the_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    list(TrainingBatches(sources(10), BARE, 4, seed=0).epoch(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_every_image_once_per_turn(untouched):
    made = TrainingBatches(sources(20, 7, val=(0, 3)), BARE, 8, seed=0)
    stream = {"d0": [], "d1": []}
    for epoch in range(12):
        for step in made.epoch(epoch):
            for batch in step:
                stream[batch.domain] += seen(batch.images)
                assert [n % 3 for n in seen(batch.images)] == batch.labels.tolist()
    for name, count in (("d0", 20), ("d1", 7)):
        trained = sorted(set(range(count)) - {0, 3})
        turns = [stream[name][at : at + len(trained)] for at in range(0, len(stream[name]), len(trained))]
        assert all(sorted(turn) == trained for turn in turns[:-1])
        assert len({tuple(turn) for turn in turns[:-1]}) > 1  # another order each time


def test_domains_are_balanced():
    made = TrainingBatches(sources(40, 10, 5), BARE, 12, seed=0)
    assert made.steps == 55 // 12
    for step in made.epoch(0):
        assert [(batch.domain, len(batch.labels)) for batch in step] == [("d0", 4), ("d1", 4), ("d2", 4)]


def test_several_rounds_in_a_step():
    """The same batches as without rounds, two at a time."""
    one, two = (TrainingBatches(sources(20, 13), BARE, 8, seed=0, rounds=r) for r in (1, 2))
    assert two.steps == one.steps // 2 == 2
    single = list(one.epoch(0))
    for number, step in enumerate(two.epoch(0)):
        assert [batch.domain for batch in step] == ["d0", "d1", "d0", "d1"]
        assert same(step, [*single[2 * number], *single[2 * number + 1]])


def test_small_batches_and_small_domains():
    made = TrainingBatches(sources(2, 1), BARE, 1, seed=0)
    assert [len(batch.labels) for batch in next(made.epoch(0))] == [1, 1]
    assert TrainingBatches(sources(2), BARE, 100, seed=0).steps == 1


def test_images_that_cannot_be_read(untouched):
    made = TrainingBatches(sources(12, broken=(1, 2)), BARE, 4, seed=0)
    batches = [seen(batch.images) for step in made.epoch(0) for batch in step]
    assert [len(batch) for batch in batches] == [4, 4, 4]
    assert {n for batch in batches for n in batch} == {0, *range(3, 12)}
    with pytest.raises(BadFile, match="None of the training images of 'd0' can be read"):
        list(TrainingBatches(sources(2, broken=(0, 1)), BARE, 2, seed=0).epoch(0))
    with pytest.raises(BadFile, match="'d0' has no training images"):
        TrainingBatches(sources(2, val=(0, 1)), BARE, 2, seed=0)


def test_later_images_stand_in_for_damaged_ones(untouched):
    """The sequence without its damaged images, from each batch's place on."""
    whole = TrainingBatches(sources(8), BARE, 3, seed=0)
    sequence = [n for epoch in range(6) for (batch,) in whole.epoch(epoch) for n in seen(batch.images)]
    broken = (0, 1, 2, 4, 6)
    made = TrainingBatches(sources(8, broken=broken), BARE, 3, seed=0)
    for turn, (batch,) in enumerate(made.epoch(0)):
        assert seen(batch.images) == [n for n in sequence[3 * turn :] if n not in broken][:3]
        assert batch.labels.tolist() == [n % 3 for n in seen(batch.images)]
    (lonely,) = next(TrainingBatches(sources(40, broken=range(39)), BARE, 9, seed=0).epoch(0))
    assert seen(lonely.images) == [39] * 9


def test_batches_are_augmented_and_normalized():
    strange = squashed(8, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    plain, shifted = (next(TrainingBatches(sources(6), p, 6, seed=0).epoch(0))[0] for p in (BARE, strange))
    assert torch.allclose((plain.images - 0.5) / 0.25, shifted.images, atol=1e-6)
    assert float(plain.images.min()) >= 0
    assert float(plain.images.max()) <= 1
    assert plain.images[:, 2].std() > 0.01  # blue is the same in all images before


def test_ordered_batches():
    (pictures,) = sources(10, val=(1, 4, 5), broken=(4,))
    found = list(ordered_batches(pictures, BARE, "val", 2))
    assert [seen(images) for images, _ in found] == [[1], [5]]
    assert [labels.tolist() for _, labels in found] == [[1], [2]]
    whole = [n for images, _ in ordered_batches(pictures, BARE, "test", 3) for n in seen(images)]
    assert whole == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    shuffled = [
        [n for images, _ in ordered_batches(pictures, BARE, "test", 3, seed=s) for n in seen(images)] for s in (0, 0, 1)
    ]
    assert shuffled[0] == shuffled[1] != shuffled[2]
    assert sorted(shuffled[0]) == whole


def test_a_batch_of_nothing_but_damaged_images_is_left_out():
    (pictures,) = sources(4, broken=(0, 1))
    assert [seen(images) for images, _ in ordered_batches(pictures, BARE, "test", 2)] == [[2, 3]]

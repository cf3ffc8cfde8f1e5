import math
from itertools import pairwise

import pytest
import torch

import domainadaptor as da
from domainadaptor import BadOption
from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork
from domainadaptor.adaptation.reuse import Reuse


def batch(seed, images=16, shift=0.0, contrast=1.0, blur=False):
    pixels = torch.randn(images, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    if blur:
        pixels[..., 1:] = (pixels[..., 1:] + pixels[..., :-1]) / 2**0.5  # the same contrast, less sharp
    return contrast * pixels + shift


def literal(batches, new):
    """The largest difference of a mean of looks, in standard errors, with a loop for each number."""

    def looks(image):
        for channel in image.tolist():
            values = [value for row in channel for value in row]
            mean = sum(values) / len(values)
            yield mean
            yield math.log(math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) + 1e-6)
            steps = [abs(b - a) for row in channel for a, b in pairwise(row)]
            yield math.log(sum(steps) / len(steps) + 1e-6)

    known = [list(looks(image)) for images in batches for image in images]
    other = [list(looks(image)) for image in new]
    worst = 0.0
    for before, now in zip(zip(*known, strict=True), zip(*other, strict=True), strict=True):
        mean = sum(before) / len(before)
        var = sum((value - mean) ** 2 for value in before) / len(before)
        error = math.sqrt(var * (1 / len(before) + 1 / len(now)))
        worst = max(worst, abs(sum(now) / len(now) - mean) / error)
    return worst


class Taught:
    """Stands for a network that learned one number from a batch."""

    def __init__(self, value):
        self.value = torch.tensor([float(value)])

    def state_dict(self):
        return [self.value.clone()], []

    def load_state_dict(self, state):
        self.value = state[0][0]


def told(*batches):
    """Whether each batch is known; the others teach their number."""
    reuse, answers = Reuse(), []
    for number, images in enumerate(batches):
        answers.append(reuse.knows(images))
        if not answers[-1]:
            reuse.learn(Taught(number), images)
    return answers


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.08, 0.1, 0.15, 0.3])
def test_the_boundary_is_four_standard_errors(shift):
    new = batch(2, shift=shift)
    assert told(batch(0), batch(1), new)[2] == (literal([batch(0), batch(1)], new) <= 4)


def test_batches_of_one_domain_are_known_after_two():
    assert told(*(batch(seed) for seed in range(30))) == [False] * 2 + [True] * 28


@pytest.mark.parametrize("change", [{"shift": 1.0}, {"contrast": 0.5}, {"blur": True}])
def test_a_new_domain_is_noticed_in_its_first_batch(change):
    old, new = [batch(seed) for seed in range(3)], [batch(seed, **change) for seed in range(3, 6)]
    assert told(*old, *new) == [False, False, True] * 2


def test_larger_batches_are_adapted_to():
    sizes = (8, 8, 8, 16, 8, 16, 16)
    assert told(*(batch(seed, images=size) for seed, size in enumerate(sizes))) == [
        *(False, False, True),
        *(False, False, True, True),
    ]


def test_single_images_and_other_inputs_are_never_known():
    assert not any(told(*(batch(seed, images=1) for seed in range(4))))
    assert not any(told(*(torch.ones(4, 7) for _ in range(4))))


def test_the_mean_of_the_lessons_is_taught_and_restored():
    reuse, network = Reuse(), Taught(0)
    for number in (1, 4):
        reuse.knows(batch(number))
        reuse.learn(Taught(number), batch(number))
    state = reuse.state_dict()
    assert not reuse.knows(batch(5, shift=1.0))
    reuse.load_state_dict(state)
    assert reuse.knows(batch(6))
    reuse.teach(network)
    assert network.value == 2.5
    reuse.reset()
    assert not reuse.knows(batch(7))


@pytest.fixture
def passes(monkeypatch):
    """Count the passes through networks that adapt."""
    counted, run = [], AdaptiveNetwork.__call__
    monkeypatch.setattr(AdaptiveNetwork, "__call__", lambda self, images: counted.append(1) or run(self, images))
    return counted


def test_a_domain_is_learned_once(net, passes):
    each = da.adapt(net, "domainadaptor-t", lr=0.1)
    once = da.adapt(net, "domainadaptor-t", lr=0.1, reuse=True)
    dark, bright = [batch(seed) for seed in range(4)], [batch(seed, shift=2.0) for seed in range(4, 6)]
    for images in dark[:2]:
        assert torch.equal(once(images), each(images))
    first, second = (da.adapt(net, "domainadaptor-t", lr=0.1).adapted_network(images) for images in dark[:2])
    with torch.no_grad():
        for mine, other in zip(first.parameters(), second.parameters(), strict=True):
            mine.copy_((mine + other) / 2)
    for images in dark[2:]:
        passes.clear()
        result = once.adapt(images)
        assert len(passes) == 1
        assert (result.loss, result.note) == (None, "no step: earlier batches of this domain taught it")
        torch.testing.assert_close(result.logits, _with_batch_statistics(first, images), atol=1e-5, rtol=1e-5)
    for images in (*bright, dark[0]):
        torch.testing.assert_close(once(images), each(images))


def _with_batch_statistics(plain, images):
    """What a plain network answers with the scales and shifts that it has and the statistics of these images."""

    def measure(norm, given):
        norm.running_var, norm.running_mean = torch.var_mean(given[0], (0, 2, 3), correction=1)

    for norm in (plain.bn1, plain.bn2, plain.bn3):
        norm.register_forward_pre_hook(measure)
    with torch.no_grad():
        return plain(images)


def test_reuse_without_a_step_is_refused(net):
    with pytest.raises(BadOption, match="reuse=True has no effect with loss=None"):
        da.adapt(net, "adamixbn", reuse=True)

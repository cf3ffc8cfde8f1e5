import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.lab.stress.streams import LabeledImages
from domainadaptor.lab.stress.stress_run import probe_accuracy, source_accuracy
from tests.conftest import GoldenNet, batch, stir


@pytest.fixture(autouse=True)
def _same_networks():
    """Whatever ran before."""
    torch.manual_seed(0)


def percent(network, probe, chunks):
    right = sum(int((network(images).argmax(1) == labels).sum()) for images, labels in chunks)
    return 100 * right / len(probe.labels)


def in_chunks(probe, *lengths):
    return list(zip(probe.images.split(lengths), probe.labels.split(lengths), strict=True))


def trained():
    torch.manual_seed(3)
    return stir(GoldenNet())


def probe_of(net, count=20):
    images = batch(count, 3, 12, 12, seed=9)
    labels = net(images).argmax(1)
    labels[::3] = (labels[::3] + 1) % 7  # a third is wrong
    return LabeledImages(images, labels)


def test_it_is_what_a_copy_of_the_adaptor_says():
    net = trained()
    probe = probe_of(net)
    adaptor = da.adapt(net, "tent", lr=0.1)
    for seed in range(3):
        adaptor(batch(6, 3, 12, 12, seed=seed))
    # Twenty images in batches of at most eight are three batches, of nearly the same size.
    parts = in_chunks(probe, 7, 7, 6)
    state, guard = adaptor.state_dict(), adaptor.collapse
    # Written out: batch statistics, with the scales and shifts that were learned.
    learned = trained()
    learned.load_state_dict(state)
    for layer in learned.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
    found = probe_accuracy(adaptor, probe, 8)
    assert found == percent(learned, probe, parts)
    assert found != source_accuracy(adaptor, probe, 8)
    assert source_accuracy(adaptor, probe, 8) == 100 * 13 / 20
    assert adaptor.collapse is guard
    assert all(torch.equal(value, state[name]) for name, value in adaptor.state_dict().items())


def test_a_guarded_probe_gets_the_source_model_where_the_guard_reacts():
    net = trained()
    probe = probe_of(net)
    options = {"lr": 10.0, "predict": "after"}  # the step on the probe itself would wake the guard
    guarded, free = da.adapt(net, "tent", guard=True, **options), da.adapt(net, "tent", **options)
    assert guarded.peek(probe.images).collapsed
    assert probe_accuracy(guarded, probe, 20) == source_accuracy(guarded, probe, 20)
    assert probe_accuracy(free, probe, 20) != source_accuracy(guarded, probe, 20)
    assert guarded.collapse.state_dict() == da.adapt(net, "tent", guard=True, **options).collapse.state_dict()

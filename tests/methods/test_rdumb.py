"""RDumb: ETA, and every so many batches it is new."""

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadOption
from tests.methods.sure_network import network, varied

BATCHES = [varied(10, seed) for seed in range(7)]
OPTIONS = {"lr": 0.05, "margin": 0.7, "eps": 0.9}


def test_it_starts_over_every_so_many_batches():
    assert da.method_info("rdumb").defaults["reset_every"] == 1000
    assert {**da.method_info("rdumb").defaults, "reset_every": None} == da.method_info("eta").defaults
    adaptor = da.adapt(network(), "rdumb", reset_every=3, **OPTIONS)
    got = [adaptor(x) for x in BATCHES]
    for start in (0, 3, 6):
        fresh = da.adapt(network(), "eta", **OPTIONS)
        assert all(torch.equal(fresh(x), z) for x, z in zip(BATCHES[start : start + 3], got[start:], strict=False))
    endless = da.adapt(network(), "eta", **OPTIONS)
    assert not torch.equal([endless(x) for x in BATCHES][-1], got[-1])


def test_by_default_after_a_thousand():
    net, images = network(), [x[:, :, :2, :2] for x in BATCHES]
    adaptor = da.adapt(net, "rdumb", margin=1.0, eps=1.0, lr=1e-3)
    first = adaptor(images[0])
    for at in range(999):
        adaptor(images[at % 7])
        assert (at == 998) == all(torch.equal(v, net.state_dict()[k]) for k, v in adaptor.state_dict().items())
    assert torch.equal(adaptor(images[0]), first)


def test_mistakes_are_explained():
    with pytest.raises(BadOption, match="at least 1"):
        da.adapt(network(), "rdumb", reset_every=0)

import copy

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.errors import SourceChanged

EDITS = {
    "one value": lambda net: net.c2.weight.data.__setitem__((0, 0, 0, 0), 9.0),
    "in place": lambda net: net.fc.bias.detach().add_(1e-3),
    "sign": lambda net: net.c1.weight.data.neg_(),
    "statistics": lambda net: net.bn2.running_mean.add_(0.1),
    "loaded": lambda net: net.load_state_dict({name: t + 1 for name, t in net.state_dict().items()}),
    "replaced": lambda net: setattr(net.fc, "weight", nn.Parameter(torch.randn(7, 16))),
    "new data": lambda net: setattr(net.fc.weight, "data", torch.randn(7, 16)),
    "new layer": lambda net: setattr(net, "fc", nn.Linear(16, 9)),
    "optimizer": lambda net: train_one_step(net),
}


def train_one_step(net):
    net.train()
    net(torch.randn(4, 3, 12, 12)).sum().backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    net.eval()


@pytest.mark.parametrize("edit", EDITS)
def test_edits_of_the_source_are_noticed(net, images, edit):
    adaptor = da.adapt(net, "domainadaptor-t")
    adaptor(images)
    EDITS[edit](net)
    with pytest.raises(SourceChanged, match="wrap it again"):
        adaptor(images)
    da.adapt(net, "domainadaptor-t")(images)


def test_running_in_train_mode_is_explained(net, images):
    adaptor = da.adapt(net, "adamixbn")
    net.train()
    net(images)
    with pytest.raises(SourceChanged, match=r"train mode.*network\.eval\(\)"):
        adaptor(images)
    with pytest.raises(SourceChanged):
        adaptor.unadapted(images)


def test_what_is_no_edit_is_not_noticed(net, images):
    adaptor = da.adapt(net, "domainadaptor-t")
    expected = adaptor(images)
    net.load_state_dict(copy.deepcopy(net.state_dict()))
    net.requires_grad_(False)
    net.train()
    net.eval()
    net.double()
    assert torch.equal(adaptor(images), expected)


def test_a_network_that_is_gone_does_not_matter(net, images):
    expected = da.adapt(net, "domainadaptor-t")(images)
    adaptor = da.adapt(copy.deepcopy(net), "domainadaptor-t")
    assert torch.equal(adaptor(images), expected)


def test_a_copy_of_an_adaptor_has_a_network_of_its_own(net, images):
    adaptor = da.adapt(net, "domainadaptor-t")
    expected, own = adaptor(images), copy.deepcopy(adaptor)
    net.c1.weight.data.zero_()
    assert torch.equal(own(images), expected)

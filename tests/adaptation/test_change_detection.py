import copy

import pytest
import torch
from torch import nn

import domainadaptor as da
from domainadaptor.errors import SourceChanged

EDITS = {
    "in place": lambda net: net.fc.bias.detach().add_(1e-3),
    "a row's sign": lambda net: net.fc.weight.detach()[1].neg_(),
    "classes swapped": lambda net: net.fc.weight.detach().copy_(net.fc.weight.detach()[[0, 2, 1, 3, 4, 5, 6]].clone()),
    "pairs doubled": lambda net: net.fc.weight.detach()[1:3].mul_(2),
    "flipped": lambda net: net.c1.weight.detach()[1:].copy_(net.c1.weight.detach()[1:].flip(-1).clone()),
    "statistics swapped": lambda net: net.bn2.running_mean.copy_(net.bn2.running_mean.flip(0).clone()),
    "moved and edited": lambda net: net.double().fc.weight.data.add_(1),
    "statistics": lambda net: net.bn2.running_mean.add_(0.1),
    "loaded": lambda net: net.load_state_dict({name: t + 1 for name, t in net.state_dict().items()}),
    "replaced": lambda net: setattr(net.fc, "weight", nn.Parameter(torch.randn(7, 16))),
    "new data": lambda net: setattr(net.fc.weight, "data", torch.randn(7, 16)),
    "new layer": lambda net: setattr(net, "fc", nn.Linear(16, 9)),
    "optimizer": lambda net: train_one_step(net),
}
# Writes through `.data` leave no trace in version counters: only the full check sees them.
HIDDEN = {
    "one value": lambda net: net.c2.weight.data.__setitem__((0, 0, 0, 0), 9.0),
    "sign": lambda net: net.c1.weight.data.neg_(),
    "behind autograd, signs": lambda net: net.fc.weight.data[1:3].neg_(),
    "behind autograd, swapped": lambda net: net.fc.weight.data.copy_(net.fc.weight.data[[0, 2, 1, 3, 4, 5, 6]].clone()),
    "behind autograd, flipped": lambda net: net.c2.weight.data[3:].copy_(net.c2.weight.data[3:].flip(-1).clone()),
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
    with pytest.raises(SourceChanged, match="Wrap it again"):
        adaptor(images)
    da.adapt(net, "domainadaptor-t")(images.to(net.c1.weight.dtype))


@pytest.mark.parametrize("edit", EDITS | HIDDEN)
def test_the_full_check_notices_every_edit(net, images, edit):
    adaptor = da.adapt(net, "domainadaptor-t")
    adaptor.check_source()
    (EDITS | HIDDEN)[edit](net)
    with pytest.raises(SourceChanged, match="Wrap it again"):
        adaptor.check_source()


def test_running_in_train_mode_is_explained(net, images):
    adaptor = da.adapt(net, "adamixbn")
    net.train()
    net(images)
    with pytest.raises(SourceChanged, match=r"train mode.*network\.eval\(\)"):
        adaptor(images)
    with pytest.raises(SourceChanged):
        adaptor.source_logits(images)


def test_what_is_no_edit_is_not_noticed(net, images):
    adaptor = da.adapt(net, "domainadaptor-t")
    expected = adaptor(images)
    net.load_state_dict(copy.deepcopy(net.state_dict()))
    net.requires_grad_(False)
    net.train()
    net.eval()
    net.double()
    assert torch.equal(adaptor(images), expected)


def test_odd_buffers_can_be_watched(net, images):
    net.register_buffer("nan", torch.full((3,), float("nan")))
    net.register_buffer("sparse", torch.eye(3).to_sparse())
    net.register_buffer("short", torch.ones(3, dtype=torch.int16))
    net.register_buffer("small", torch.ones(3).to(torch.float8_e4m3fn))
    net.register_buffer("complex", torch.ones(3, dtype=torch.complex64))
    net.register_buffer("empty", torch.ones(0))
    adaptor = da.adapt(net, "adabn")
    adaptor(images)
    adaptor(images)
    net.short[1] = 4
    with pytest.raises(SourceChanged, match="short"):
        adaptor(images)


def test_a_network_that_is_gone_does_not_matter(net, images):
    expected = da.adapt(net, "domainadaptor-t")(images)
    adaptor = da.adapt(copy.deepcopy(net), "domainadaptor-t")
    assert torch.equal(adaptor(images), expected)


def test_a_copy_of_an_adaptor_has_a_network_of_its_own(net, images):
    adaptor = da.adapt(net, "domainadaptor-t")
    expected, own = adaptor(images), copy.deepcopy(adaptor)
    net.c1.weight.data.zero_()
    assert torch.equal(own(images), expected)

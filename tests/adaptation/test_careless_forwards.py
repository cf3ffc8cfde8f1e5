"""Networks whose forward writes to itself or to its input do no harm, neither to the user nor to the next batch."""

import copy

import pytest
import torch
from torch import nn

import domainadaptor as da
from tests.adaptation.fingerprints import assert_same, fingerprint
from tests.conftest import GoldenNet, make, needs, stir, suited

METHODS = list(da.list_methods())


class Counting(GoldenNet):
    """A forward that writes to its buffers and its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("total", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        self.total = self.total + 1
        return super().forward(x.mul_(1.0 + 0.1 * float(self.calls)))


def test_a_forward_that_writes_to_buffers_and_input_does_no_harm(images):
    net = stir(Counting())
    held = images.clone()
    adaptor = da.adapt(net, "adamixbn")
    first = adaptor(images)
    assert torch.equal(adaptor(images), first)
    assert torch.equal(images, held)
    adaptor.source_logits(images)
    adaptor(images[:0])
    assert float(net.calls) == float(net.total) == 0
    assert float(adaptor.state_dict()["calls"]) == float(adaptor.state_dict()["total"]) == 0


class Normalizing(GoldenNet):
    """Forwards that write to their own parameters, as heads with unit rows and clamped temperatures do."""

    scaled = True  # else the logits are what the head answers, as methods that need its features ask
    counted = True  # by autograd, which then refuses a second pass before the backward, as some methods make one

    def __init__(self) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(9.0))

    def forward(self, x):
        with torch.no_grad():
            (self.logit_scale if self.counted else self.logit_scale.data).clamp_(max=3.0)
        self.fc.weight.data.div_(self.fc.weight.data.norm(dim=1, keepdim=True))
        self.bn2.weight.data.clamp_(max=0.9)
        return super().forward(x) * (self.logit_scale if self.scaled else 1)


@pytest.mark.parametrize("method", METHODS)
def test_a_forward_that_writes_to_its_parameters_does_no_harm(method, images):
    torch.manual_seed(0)
    net = suited(stir(Normalizing()), method)
    net.counted = method not in ("domainadaptor-aug", "deyo", "roid")
    net.scaled = not needs(method, "features and a linear head")
    before = fingerprint(net)
    adaptor = make(net, method)
    state = copy.deepcopy(adaptor.state_dict())
    first = adaptor(images)
    for _ in range(2):
        adaptor.reset()
        assert torch.equal(adaptor(images), first)
        adaptor.reset()
        assert_same(before, fingerprint(net))
        assert all(torch.equal(value, state[name]) for name, value in adaptor.state_dict().items())
    assert torch.equal(copy.deepcopy(adaptor)(images), first)
    assert torch.equal(adaptor.source_logits(images), copy.deepcopy(net)(images))
    assert adaptor.source.c1.weight.data_ptr() == net.c1.weight.data_ptr()
    assert adaptor.source.fc.weight.data_ptr() != net.fc.weight.data_ptr()


def test_a_failing_first_batch_leaves_written_parameters_alone(images, monkeypatch):
    net = stir(Normalizing())
    before = fingerprint(net)
    adaptor = da.adapt(net, "domainadaptor-t")
    with monkeypatch.context() as patched:
        patched.setattr(GoldenNet, "forward", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            adaptor(images)
    assert_same(before, fingerprint(net))
    adaptor(images)
    assert_same(before, fingerprint(net))


class Keeping(GoldenNet):
    """A forward that keeps its activations, in every place where a module can."""

    def forward(self, x):
        logits = super().forward(x)
        self.last, self.seen = logits, [logits]
        self.register_buffer("cache", logits.detach().mean(0))
        return logits


@pytest.mark.parametrize("method", METHODS)
def test_what_a_forward_keeps_is_forgotten(method, images):
    net = suited(stir(Keeping()), method)
    adaptor = make(net, method)
    names = list(adaptor.state_dict())
    expected = adaptor(images)
    assert list(adaptor.state_dict()) == names
    for fresh in (copy.deepcopy(adaptor), adaptor.to(torch.float32)):
        fresh.reset()
        assert torch.equal(fresh(images), expected)
    assert not hasattr(net, "last")


class Late(GoldenNet):
    """A forward that writes to its parameters at its end."""

    def forward(self, x):
        logits = super().forward(x)
        self.fc.weight.data.mul_(0.9)
        return logits


@pytest.mark.parametrize("method", ["adamixbn", "source"])
def test_a_first_batch_that_fails_tells_nothing_about_what_a_forward_writes_to(method, images):
    net = stir(Late())
    before = fingerprint(net)
    adaptor, expected = make(net, method), make(net, method)(images)
    with pytest.raises(da.BadBatch):
        adaptor(images[:, :2])  # the first convolution expects three channels
    for _ in range(2):
        assert torch.equal(adaptor(images), expected)
    assert_same(before, fingerprint(net))

"""The path of a batch: few frames from the call to the norm layer, few reads from the device, one reset."""

import inspect

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import domainadaptor as da
from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork
from tests.conftest import GoldenNet, batch, make, stir

MOST_FRAMES = 6
MOST_READS = 3


class Deep(torch.nn.Module):
    """As many norm layers as asked for."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            *(m for _ in range(layers) for m in (torch.nn.Conv2d(3, 3, 1), torch.nn.BatchNorm2d(3)))
        )
        self.fc = torch.nn.Linear(3, 5)

    def forward(self, x):
        return self.fc(self.layers(x).mean((2, 3)))


class CountReads(TorchDispatchMode):
    """Counts what makes a GPU wait: values that Python reads from a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.reads += any(name in str(func) for name in ("_local_scalar_dense", "is_nonzero", "aten.equal"))
        return func(*args, **(kwargs or {}))


def own_frames() -> list[str]:
    return [f.function for f in inspect.stack() if "/domainadaptor/" in f.filename.replace("\\", "/")]


@pytest.mark.parametrize("method", da.list_methods())
def test_six_frames_from_the_call_to_the_norm_layer(method, net, images, monkeypatch):
    adaptor, seen = make(net, method), []
    adaptor(images)
    for norm in adaptor._main.norms.values():
        real = norm.forward

        def spy(x, real=real):
            seen.append([*own_frames(), "forward"])
            return real(x)

        norm.forward = spy
    adaptor(images)
    if method not in ("source", "lame", "t3a"):
        longest = MOST_FRAMES + (1 if method == "memo" else 0)  # which adapts to one image after the other
        assert 0 < len(seen[0]) <= longest, seen[0]


@pytest.mark.parametrize("layers", [2, 20])
@pytest.mark.parametrize("method", ["source", "adabn", "adamixbn", "domainadaptor-t", "domainadaptor-aug", "tent"])
def test_reads_from_the_device_do_not_grow_with_depth(method, layers):
    # Adam reads its step counters, which are on the CPU.
    adaptor = da.adapt(stir(Deep(layers)), method, **({"optimizer": "sgd"} if method == "tent" else {}))
    images = batch(4, 3, 6, 6)
    for _ in range(2):  # what is found out once is found out by now
        adaptor(images)
    counted = CountReads()
    views = 3 * 4 * 6 if method == "domainadaptor-aug" else 0  # flips and boxes are drawn on the CPU
    with counted:
        result = adaptor.adapt(images)
    assert counted.reads <= MOST_READS + views
    before = counted.reads
    with counted:
        assert 0 <= min(result.alpha.values(), default=0.0) <= 1
    assert (counted.reads > before) == (method in ("adamixbn", "domainadaptor-t", "domainadaptor-aug"))


def test_one_reset_per_batch(images, monkeypatch):
    adaptor = da.adapt(stir(GoldenNet()), "domainadaptor-t")
    resets, real = [], AdaptiveNetwork.reset
    monkeypatch.setattr(AdaptiveNetwork, "reset", lambda self: resets.append(1) or real(self))
    monkeypatch.setattr(AdaptiveNetwork, "load_state_dict", pytest.fail)
    adaptor(images)
    assert len(resets) == 1


@pytest.mark.parametrize("method", ["domainadaptor-t", "tent", "delta"])
def test_an_interrupt_while_a_batch_is_ended_is_made_up_for(method, net, images, monkeypatch):
    adaptor, other = (da.adapt(net, method, lr=0.05) for _ in range(2))
    for x in (images, batch(8, 3, 12, 12, seed=1)):
        adaptor(x), other(x)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        for name in ("reset", "load_state_dict", "end_batch"):
            patched.setattr(AdaptiveNetwork, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            adaptor(batch(8, 3, 12, 12, seed=2))
    assert torch.equal(adaptor(images), other(images))

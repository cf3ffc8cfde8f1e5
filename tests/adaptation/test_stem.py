"""What several passes have in common is computed once, and the answer is as if it were not."""

import gc
import pickle
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import domainadaptor as da
from tests.conftest import batch, stir


class Odd(nn.Module):
    """Does something odd on the way to its first norm; `spelled` calls the convolution as a function, out of reach."""

    def __init__(self, odd: str, spelled: bool) -> None:
        super().__init__()
        self.odd, self.spelled = odd, spelled
        self.conv, self.bn = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)
        self.late, self.bn2 = nn.Conv2d(6, 6, 3), nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 4)

    def stem(self, x):
        return F.conv2d(x, self.conv.weight, self.conv.bias) if self.spelled else self.conv(x)

    def forward(self, x):
        if self.odd == "writes to its input":
            x.mul_(1.5)
        if self.odd == "writes to its input secretly":
            x.data.mul_(1.5)
        if self.odd == "scales its input":
            x = x * 1.5
        y = self.stem(x)
        if self.odd == "writes to the output":
            y = y.relu_()
        if self.odd == "writes to the output secretly":
            y.data.relu_()
        if self.odd == "uses it twice":
            other = self.stem(x)
            y = y + other.relu_() * y
        if self.odd != "a later norm":
            y = self.bn(y)
        return self.head(self.bn2(self.late(y)).relu().mean((2, 3)))


ODD = [
    "nothing", "writes to its input", "writes to its input secretly", "scales its input", "writes to the output",
    "writes to the output secretly", "uses it twice", "a later norm",
]  # fmt: skip
METHODS = {
    "domainadaptor-t": {"lr": 0.1, "steps": 2},
    "domainadaptor-aug": {"lr": 0.1},
    "tent": {"predict": "after", "steps": 2},
    "sar": {},
    "tsd": {},
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("odd", ODD)
def test_the_answer_is_that_of_all_computed_anew(odd, method):
    torch.manual_seed(0)
    network = stir(Odd(odd, spelled=False))
    spelled = Odd(odd, spelled=True).eval()
    spelled.load_state_dict(network.state_dict())
    mine, theirs = (da.adapt(each, method, **METHODS[method]) for each in (network, spelled))
    for seed in range(3):
        images = batch(8, 3, 9, 9, seed=seed)
        assert torch.equal(mine(images), theirs(images))
        assert torch.equal(images, batch(8, 3, 9, 9, seed=seed))


def test_the_first_convolution_runs_once(monkeypatch):
    seen = []
    inner = nn.Conv2d._conv_forward
    monkeypatch.setattr(nn.Conv2d, "_conv_forward", lambda self, *given: seen.append(self) or inner(self, *given))
    adaptor = da.adapt(stir(Odd("nothing", spelled=False)), "domainadaptor-t")
    counts = []
    for seed in range(3):
        seen.clear()
        adaptor(batch(8, 3, 9, 9, seed=seed))
        counts.append((sum(conv.in_channels == 3 for conv in seen), sum(conv.in_channels == 6 for conv in seen)))
    assert counts == [(2, 2), (1, 2), (1, 2)]  # the first batch shows that it may be kept


def test_nothing_is_kept_after_a_batch():
    network = stir(Odd("nothing", spelled=False))
    outputs = []
    network.conv.register_forward_hook(lambda _, __, output: outputs.append(weakref.ref(output)))
    adaptor = da.adapt(network, "domainadaptor-t")
    adaptor(batch(8, 3, 9, 9))
    gc.collect()
    assert len(outputs) == 2
    assert [output() for output in outputs] == [None, None]


def test_an_adaptor_that_keeps_its_stem_can_be_pickled():
    adaptor = da.adapt(stir(Odd("nothing", spelled=False)), "domainadaptor-t")
    images = batch(8, 3, 9, 9)
    expected = adaptor(images)
    again = pickle.loads(pickle.dumps(adaptor))
    assert torch.equal(again(images), expected)
    assert torch.equal(again(images), expected)

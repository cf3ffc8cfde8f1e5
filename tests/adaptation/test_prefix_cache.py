"""What several passes have in common is computed once, and the answer is as if it were not."""

import copy
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
def test_the_answer_is_that_of_all_computed_again(odd, method):
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


class Block(nn.Module):
    """A convolution and a norm that come before all learning, and something odd."""

    def __init__(self, odd: str) -> None:
        super().__init__()
        self.odd = odd
        self.conv, self.bn = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.register_buffer("calls", torch.zeros(()))
        self.seen = 0

    def forward(self, x, factor=1.0):
        if self.odd == "writes to its input":
            x.mul_(1.5)
        if self.odd == "writes to its input secretly":
            x.data.mul_(1.5)
        y = self.bn(self.conv(x)) * factor
        if self.odd == "counts in a buffer":
            self.calls += 1
            y = y * self.calls
        if self.odd == "counts in an attribute":
            self.seen += 1
            y = y * self.seen
        if self.odd == "is random":
            y = y + torch.randn_like(y)
        if self.odd == "uses its norm twice":
            y = self.bn(y)
        return (y, x) if self.odd == "returns two tensors" else y


class Deep(nn.Module):
    """A block before the norm that learns first, and something odd between them."""

    def __init__(self, odd: str) -> None:
        super().__init__()
        self.odd = odd
        self.conv, self.bn = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)
        self.relu = nn.ReLU(inplace=odd != "a relu that is not in place")
        self.block = Block(odd)
        self.late, self.bn2 = nn.Conv2d(6, 6, 3), nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        bright = bool((x > 100).any())  # no image of the first batch, which tells what may be kept
        y = self.bn(self.conv(x))
        if self.odd == "looks before a relu in place":
            shift = y.mean((1, 2, 3), keepdim=True)
            y = self.relu(y) + shift
        elif self.odd == "ignores what a relu in place returns":
            self.relu(y)
        elif self.odd == "a function between":
            y = F.relu(y)
        else:
            y = self.relu(y)
        short = y
        if self.odd == "keywords":
            y = self.block(y, factor=2.0)
        elif self.odd == "numbers":
            y = self.block(y, 2.0)
        elif self.odd == "returns two tensors":
            y, short = self.block(y)
        elif self.odd == "uses its block twice":
            y = self.block(self.block(y))
        else:
            y = self.block(y)
        if self.odd == "writes to the block's output":
            y.mul_(0.5)
        if self.odd == "writes to the block's output of bright images" and bright:
            y.mul_(0.5)
        if self.odd == "uses its block twice on bright images" and bright:
            y = y + self.block(short).relu_() * y
        if self.odd == "writes to the block's output secretly":
            y.data.mul_(0.5)
        y = self.bn2(self.late(y + short)).relu()
        if self.odd == "comes back":  # what learned goes through an early block again
            y = self.block(y)
        return self.head(y.mean((2, 3)))


DEEP = [
    "nothing", "a relu that is not in place", "writes to its input", "writes to its input secretly",
    "counts in a buffer", "counts in an attribute", "is random", "uses its norm twice", "returns two tensors",
    "looks before a relu in place", "ignores what a relu in place returns", "a function between", "keywords", "numbers",
    "uses its block twice", "writes to the block's output", "writes to the block's output secretly", "comes back",
    "writes to the block's output of bright images", "uses its block twice on bright images",
]  # fmt: skip
LATER = {
    "domainadaptor-t": {"lr": 0.1, "steps": 2},
    "domainadaptor-skd": {"lr": 0.1, "fold": False},
    "domainadaptor-aug": {"lr": 0.1, "views": 1},
    "tent": {"predict": "after", "steps": 2, "m": 0.4},
}


@pytest.mark.parametrize("method", LATER)
@pytest.mark.parametrize("odd", DEEP)
def test_with_later_layers_alone_the_answer_is_that_of_all_computed_again(monkeypatch, odd, method):
    torch.manual_seed(0)
    network = stir(Deep(odd))
    mine = da.adapt(network, method, adapt_from=0.9, **LATER[method])
    monkeypatch.setattr("domainadaptor.adaptation.prefix_cache._before_learning", lambda _: [])
    fresh = da.adapt(network, method, adapt_from=0.9, **LATER[method])
    for seed in range(3):
        images = batch(8, 3, 9, 9, seed=seed)
        images[0, 0, 0, 0] = 200.0 if seed else 0.0
        results = []
        for adaptor in (mine, fresh):
            torch.manual_seed(seed)
            results.append(adaptor.adapt(images))
        assert torch.equal(results[0].logits, results[1].logits)
        assert torch.equal(results[0].before, results[1].before)
        assert results[0].alpha == results[1].alpha
        assert results[0].note == results[1].note
        assert not torch.equal(results[0].logits, results[0].before)
    one, other = mine.state_dict(), fresh.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("odd", "once"),
    [("nothing", True), ("a function between", True), ("counts in a buffer", False), ("is random", False)],
)
def test_blocks_before_learning_run_once(monkeypatch, odd, once):
    seen = []
    inner = nn.Conv2d._conv_forward
    monkeypatch.setattr(nn.Conv2d, "_conv_forward", lambda self, *given: seen.append(self) or inner(self, *given))
    adaptor = da.adapt(stir(Deep(odd)), "domainadaptor-t", adapt_from=0.9, steps=2)
    counts = []
    for seed in range(3):
        seen.clear()
        adaptor(batch(8, 3, 9, 9, seed=seed))
        counts.append(sum(conv.padding == (1, 1) for conv in seen))
    # The first batch shows whether it may be kept: after one more run, or never.
    assert counts == ([2, 1, 1] if once else [3, 3, 3])


def test_nothing_of_a_block_is_kept_after_a_batch():
    network = stir(Deep("nothing"))
    outputs = []
    network.block.register_forward_hook(lambda _, __, output: outputs.append(weakref.ref(output)))
    adaptor = da.adapt(network, "domainadaptor-t", adapt_from=0.9)
    for _ in range(2):
        adaptor(batch(8, 3, 9, 9))
    gc.collect()
    assert len(outputs) == 4  # the block's own hooks are called in every pass
    assert [output() for output in outputs] == [None] * 4


def test_an_adaptor_that_keeps_blocks_can_be_pickled_and_copied():
    adaptor = da.adapt(stir(Deep("nothing")), "domainadaptor-t", adapt_from=0.9, lr=0.1)
    images = batch(8, 3, 9, 9)
    expected = adaptor(images)
    for again in (pickle.loads(pickle.dumps(adaptor)), copy.deepcopy(adaptor)):
        assert all(torch.equal(again(images), expected) for _ in range(2))

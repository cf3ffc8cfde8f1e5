"""An exception or an interrupt at any line of a call: the batch is adapted to or not at all, and the next one works."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import domainadaptor as da
from tests.adaptation.fingerprints import assert_same, fingerprint
from tests.adaptation.interrupts import lines_of, stop_at
from tests.conftest import GoldenNet, batch, make, stir, suited

METHODS = list(da.list_methods())
CALLS: dict[str, Callable[[da.Adaptor, Tensor], object]] = {
    "adapt": lambda adaptor, images: adaptor.adapt(images),
    "peek": lambda adaptor, images: adaptor.peek(images),  # all is restored
    "reset": lambda adaptor, images: adaptor.reset(),
}


def images(seed: int) -> Tensor:
    return batch(4, 3, 6, 6, seed=seed)


def answers(adaptor: da.Adaptor) -> list[Tensor]:
    """What an adaptor holds, and what it predicts from now on; episodic methods hold nothing."""
    return [*adaptor.state_dict().values(), adaptor(images(3)), adaptor(images(4)), *adaptor.state_dict().values()]


def alike(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def check_every(method: str, call: str, error: type[BaseException], stride: int) -> None:
    """Stop a call at every line that runs, or at some of them."""
    net = suited(stir(GoldenNet()), method)
    untouched = fingerprint(net)
    start = make(net, method)
    for seed in range(2):  # what is found out once is found out by now
        start(images(seed))
    run = CALLS[call]
    before, finished = answers(copy.deepcopy(start)), copy.deepcopy(start)
    run(finished, images(2))
    after = answers(finished)
    counting = copy.deepcopy(start)
    points = lines_of(lambda: run(counting, images(2)))
    assert len(points) > 20
    for at in points[len(method) % stride :: stride]:
        adaptor = copy.deepcopy(start)
        where = stop_at(lambda adaptor=adaptor: run(adaptor, images(2)), at, error)
        torch.set_grad_enabled(True)  # a line that leaves a `with` leaves its mode switched; torch's own have that too
        found = answers(adaptor)
        assert alike(found, before) or alike(found, after), where
    assert_same(untouched, fingerprint(net))


@pytest.mark.parametrize("method", METHODS)
def test_a_call_that_is_stopped_at_some_lines(method):
    error = KeyboardInterrupt if len(method) % 2 else ValueError
    check_every(method, "adapt", error, stride=47)


@pytest.mark.parametrize("call", ["peek", "reset"])
@pytest.mark.parametrize("method", ["delta", "note", "rotta"])
def test_restoring_that_is_stopped_at_some_lines(method, call):
    check_every(method, call, KeyboardInterrupt, stride=29)


@pytest.mark.long
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("method", METHODS)
def test_a_call_that_is_stopped_at_every_line(method, call, error):
    check_every(method, call, error, stride=1)


@pytest.mark.parametrize("method", ["note", "rotta"])
def test_statistics_follow_the_bank_only(method):
    """An interrupt anywhere in an update of the bank leaves no layer that still follows."""
    net = suited(stir(GoldenNet()), method)
    adaptor = make(net, method)
    adaptor(images(0))
    copy.deepcopy(adaptor)(images(1))  # what is computed once in a process is computed by now
    counting, expected = copy.deepcopy(adaptor), copy.deepcopy(adaptor).peek(images(2)).before
    for at in lines_of(lambda: counting(images(1)), "_bank.py"):
        stopped = copy.deepcopy(adaptor)
        stop_at(lambda stopped=stopped: stopped(images(1)), at, KeyboardInterrupt)
        assert all(norm.following is None for norm in stopped._main.norms.values())
        assert torch.equal(stopped.peek(images(2)).before, expected)

"""Several threads and processes with one adaptor."""

import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import domainadaptor as da
from tests.adaptation.interrupts import lines_of, stop_at
from tests.conftest import GoldenNet, batch, make, stir, suited

BATCHES = [batch(4, 3, 6, 6, seed=seed) for seed in range(12)]
COPIES: dict[str, Callable[[da.Adaptor], dict[str, Tensor]]] = {
    "state_dict": lambda adaptor: adaptor.state_dict(),
    "deepcopy": lambda adaptor: copy.deepcopy(adaptor).state_dict(),
    "pickle": lambda adaptor: pickle.loads(pickle.dumps(adaptor)).state_dict(),
}


@pytest.fixture
def quick_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def held(state: dict[str, Tensor]) -> tuple[bytes, ...]:
    return tuple(tensor.numpy().tobytes() for tensor in state.values())


@pytest.mark.parametrize("kind", COPIES)
@pytest.mark.parametrize("method", ["delta", "rotta"])
def test_a_copy_is_of_a_moment_between_two_batches(method, kind, quick_switches):
    """While another thread adapts to one batch after the other."""
    adaptor = make(stir(GoldenNet()), method)
    serial = copy.deepcopy(adaptor)
    moments = {held(serial.state_dict())}
    for x in BATCHES:
        serial(x)
        moments.add(held(serial.state_dict()))
    worker = threading.Thread(target=lambda: [adaptor(x) for x in BATCHES])
    worker.start()
    copies = []
    while worker.is_alive():
        copies.append(held(COPIES[kind](adaptor)))
    worker.join()
    assert set(copies) <= moments
    assert held(adaptor.state_dict()) == held(serial.state_dict())


def test_a_copy_that_is_asked_for_during_a_batch_waits(images):
    net = stir(GoldenNet())
    inside, go_on = threading.Event(), threading.Event()
    adaptor = da.adapt(net, "tent", lr=0.05)
    expected = copy.deepcopy(adaptor)
    expected(images)

    def pause(*_):
        inside.set()
        go_on.wait(30)

    adaptor._main.network.fc.register_forward_hook(pause)
    worker = threading.Thread(target=adaptor, args=(images,))
    worker.start()
    inside.wait(30)
    states = []
    asking = threading.Thread(target=lambda: states.append(adaptor.state_dict()))
    asking.start()
    asking.join(0.2)
    assert not states
    go_on.set()
    worker.join()
    asking.join()
    assert held(states[0]) == held(expected.state_dict())


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupt_at_no_line_locks_a_thread_out(error, images):
    """The caller's thread can always call again; others, unless the line was the one that gives the lock back."""
    start = da.adapt(stir(GoldenNet()), "adabn")
    expected = start(images)
    for at in lines_of(lambda: start(images)):
        adaptor = copy.deepcopy(start)
        where = stop_at(lambda adaptor=adaptor: adaptor(images), at, error)
        torch.set_grad_enabled(True)
        assert torch.equal(adaptor(images), expected), where


FORK = """
import os, signal, sys, threading, warnings
import torch
from tests.conftest import GoldenNet, batch, stir
import domainadaptor as da

torch.set_num_threads(1)
warnings.simplefilter("ignore")  # newer Pythons warn of forks with threads
inside, go_on, parent = threading.Event(), threading.Event(), os.getpid()
net = stir(GoldenNet())
adaptor, other = (da.adapt(net, "delta", lr=0.05) for _ in range(2))
batches = [batch(4, 3, 6, 6, seed=seed) for seed in range(3)]
for x in batches[:2]:
    adaptor(x), other(x)
expected = other(batches[2])

def wait(*_):
    if os.getpid() == parent:
        inside.set()
        go_on.wait(60)

adaptor._main.network.fc.register_forward_hook(wait)
worker = threading.Thread(target=adaptor, args=(batches[2],))
worker.start()
inside.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if torch.equal(adaptor(batches[2]), expected) else 3)
go_on.set()
worker.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_forked_process_goes_on_from_the_last_batch_that_was_finished():
    """The lock that another thread holds, and the batch that it is at, are not of the child."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def storm(method: str, threads: int, calls: int) -> None:
    """Many threads call, copy, save and reset one adaptor; every answer is a serial one."""
    episodic = {"reset_every": 1} if "reset_every" in da.method_info(method).defaults else {}
    adaptor = make(suited(stir(GoldenNet()), method), method, **episodic)
    expected = [adaptor(x) for x in BATCHES]
    source = held(adaptor.state_dict())
    wrong: list[str] = []

    def work(thread: int) -> None:
        try:
            for call in range(calls):
                at = (thread + call) % len(BATCHES)
                if not torch.equal(adaptor(BATCHES[at]), expected[at]):
                    wrong.append(f"thread {thread}, call {call}")
                other = (thread * 7 + call) % 40
                if other == 0 and held(copy.deepcopy(adaptor).state_dict()) != source:
                    wrong.append("a copy")
                if other == 1 and held(adaptor.state_dict()) != source:
                    wrong.append("a state")
                if other == 2:
                    adaptor.reset()
        except BaseException as error:
            wrong.append(repr(error))
            raise

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.parametrize("method", ["domainadaptor-aug", "tent"])
def test_threads_get_serial_answers_with_copies_and_resets_between(method, quick_switches):
    storm(method, threads=8, calls=6)


@pytest.mark.long
@pytest.mark.parametrize("method", da.list_methods())
def test_threads_get_serial_answers_for_long(method, quick_switches):
    storm(method, threads=8, calls=1000)

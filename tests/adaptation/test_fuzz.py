"""Random batches and calls: a finite answer or a typed error, and the network of the user as it was.

A few calls of every method run always; `make test-long` makes ten thousand, and a hundred thousand for leaks.
"""

import os
import random
import warnings

import psutil
import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import AdaptationError
from tests.adaptation.fingerprints import assert_same, fingerprint
from tests.conftest import GoldenNet, batch, make, stir, suited

METHODS = list(da.list_methods())
CALLS = ("__call__", "adapt", "peek", "source_logits", "adapted_network", "reset")
MEBIBYTE = 2**20
LONG = [pytest.mark.long, pytest.mark.timeout(6 * 3600)]  # memo takes many passes


def draw(rng: random.Random) -> torch.Tensor:
    """Return a batch of odd size, scale, layout and content."""
    side = rng.choice((1, 2, 5, 12))
    images = batch(rng.choice((0, 1, 2, 3, 8)), 3, side, rng.choice((side, 12)), seed=rng.randrange(1000))
    images = images * 10.0 ** rng.choice((0, 0, 0, -38, -8, 8, 37))
    kind = rng.randrange(10)
    if kind == 0 and len(images):
        images[rng.randrange(len(images)), rng.randrange(3)] = rng.choice((float("nan"), float("inf"), -float("inf")))
    elif kind == 1:
        images = images[:1].expand(len(images), -1, -1, -1)
    elif kind == 2:
        images[:, rng.randrange(3)] = rng.choice((0.0, 1.0))
    elif kind == 3:
        images = rng.choice(
            (images.double(), images.half(), images.int(), images[:, :2], images[0:1, 0], images.to_sparse())
        )
    elif kind == 4:
        images = images.contiguous(memory_format=torch.channels_last).requires_grad_()
    return images


def fuzz(method: str, calls: int) -> dict[str, int]:
    """Call a method at random; count what came of it."""
    rng, net = random.Random(method), suited(stir(GoldenNet()), method)
    adaptor, before, found = make(net, method), fingerprint(net), {"answers": 0, "errors": 0}
    for _ in range(calls):
        images, call = draw(rng), rng.choice(CALLS)
        given = images.detach().clone()
        arguments = () if call == "reset" else (images,)
        try:
            answer = getattr(adaptor, call)(*arguments)
        except AdaptationError:
            found["errors"] += 1
            continue
        found["answers"] += 1
        logits = getattr(answer, "logits", answer)
        if isinstance(logits, torch.Tensor):
            assert len(logits) == len(images)
            assert logits.isfinite().all(), call
        if given.layout == torch.strided:
            assert torch.equal(given, images.detach()) or given.isnan().any(), "the images were changed"
    assert_same(before, fingerprint(net))
    return found


@pytest.mark.parametrize("calls", [12, pytest.param(400, marks=pytest.mark.long)])
@pytest.mark.parametrize("method", METHODS)
def test_random_calls_end_in_finite_answers_or_typed_errors(method, calls):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fuzz(method, calls)
    assert found["answers"] > 0


def grown(method: str, calls: int) -> tuple[float, int]:
    """Return by how many bytes a call leaves the process larger, and how many more files are open."""
    adaptor, images = make(suited(stir(GoldenNet()), method), method), batch(4, 3, 8, 8)
    process = psutil.Process()
    for _ in range(100):
        adaptor(images)
    before, files = process.memory_info().rss, len(os.listdir("/proc/self/fd"))
    for _ in range(calls):
        adaptor(images)
    return (process.memory_info().rss - before) / calls, len(os.listdir("/proc/self/fd")) - files


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs the file system /proc")
@pytest.mark.parametrize(
    ("method", "calls"),
    [("tent", 300), *(pytest.param(method, 100_000, marks=LONG) for method in METHODS)],
)
def test_calls_leave_no_memory_and_no_files_behind(method, calls):
    memory, files = grown(method, calls)
    assert files == 0
    assert memory * calls <= max(2 * MEBIBYTE, calls / 10_000 * MEBIBYTE)  # pages come in larger pieces

"""Promises 14 to 19, the overhead, and killed workers: in short on a small network, in long with `make test-load`.

The short forms check what is answered. How fast is checked by the long forms alone, which need a quiet machine.
"""

import asyncio
import json
import random
import statistics
import time

import numpy as np
import pytest
import torch

import domainadaptor as da
from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.lab.allocator import keep_freed_memory
from domainadaptor.lab.data.images import read_image_bytes
from domainadaptor.lab.networks.checkpoint import Checkpoint, CheckpointCard, save_checkpoint
from domainadaptor.lab.networks.loading import load_network
from tests.serve import report
from tests.serve.load import Load, hold, ideal_queue, large_uploads, overload, slow_clients
from tests.serve.poison import Unrolled, attack
from tests.serve.service import Service, picture, png
from tests.serve.tenants import Tenants, kill_workers

WORKERS = 2
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
HOSTILE = (0, 2, 4, 8)  # in a batch of 40: 0, 5, 10 and 20 %
MAX_BUFFER = 256 * 2**20


@pytest.fixture(scope="module")
def small(running):
    running.wait_for_workers(WORKERS)
    return Load(running, [[picture(10 * at + k) for k in range(4)] for at in range(4)]).measure(1, 2, repeats=2)


def test_a_light_load_gets_right_answers(small):
    found = hold(small, 2, WORKERS, 0.5)
    assert (found["lost"], found["wrong"], found["doubled"]) == (0, 0, 0)
    assert found["right"]
    assert 0 < found["busy"] < 1
    assert min(found["same_work_ratio"], found["ideal_ratio"], found["ratio"]) > 0


def test_an_overload_gets_right_answers_or_is_refused(small):
    found = overload(small, 2)
    assert (found["lost"], found["wrong"]) == (0, 0)
    assert found["right"]


def test_slow_clients_are_cut_and_the_others_get_right_answers(small):
    found = slow_clients(small, 2, 40)
    assert (found["lost"], found["wrong"]) == (0, 0)
    assert found["slowest_cut"] < 30


def test_large_uploads_are_refused_in_bounded_memory(small):
    found = large_uploads(small.service, 20_000_000, 8)
    assert found["statuses"].keys() <= {413, 429, 503}
    assert found["grown"] < 40_000_000


def test_tenants_do_not_meet(small):
    assert asyncio.run(Tenants(small, 24).run()) == {"right": 24, "streams right": 1}


def test_a_killed_worker_costs_its_streams_and_nothing_else(small):
    before = small.service.metric("worker_restarts ")
    found = kill_workers(small, 1, WORKERS)
    assert (found["lost"], found["wrong"], found["streams"]) == (0, 0, 1)
    assert found["right"]
    assert small.service.metric("worker_restarts ") == before + 1


def test_the_overhead_is_measured_against_the_same_work(network, service):
    ratio, seconds = overhead(service, *network, [picture(at) for at in range(4)], repeats=1)
    assert min(ratio, seconds) > 0


def test_the_ideal_queue_of_one_worker_that_is_never_busy_adds_nothing():
    assert ideal_queue(0.001, [0.01] * 500, 1) == pytest.approx(0.01)
    assert ideal_queue(90.0, [0.01] * 5000, 1) > 0.05
    assert ideal_queue(90.0, [0.001, 0.019] * 2500, 1) > ideal_queue(90.0, [0.01] * 5000, 1)


def test_the_attack_goes_through_the_method_as_the_library_has_it(network):
    net, _ = network
    images = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(2)).requires_grad_()
    expected = da.adapt(net)(images.detach()).log_softmax(1)
    found = Unrolled(net)(images)
    torch.testing.assert_close(found.detach().log_softmax(1), expected, rtol=1e-3, atol=1e-3)
    found[0].sum().backward()
    assert images.grad[1:].abs().amax((1, 2, 3)).min() > 0


def test_hostile_images_harm_their_own_batch_and_only_its_adapted_predictions(network, service):
    net, preprocessing = network
    mean, std = (torch.tensor(v)[:, None, None] for v in (preprocessing.mean, preprocessing.std))
    pixels = torch.rand(10, 3, 16, 16, generator=torch.Generator().manual_seed(4))
    pixels = (pixels * 255).round() / 255
    with torch.no_grad():
        labels = net((pixels[:8] - mean) / std).argmax(1)
    hostile = attack(
        Unrolled(net), pixels[:8], labels, pixels[8:], steps=3, normalize=lambda images: (images - mean) / std
    )
    rows = [
        json.loads(service.predict([png(image) for image in (*pixels[:8], *mates)]).body)["predictions"][:8]
        for mates in (pixels[8:], hostile)
    ]
    for part in ("source_prediction", "source_confidence"):
        assert [row[part] for row in rows[0]] == [row[part] for row in rows[1]]
    assert [row["adapted_confidence"] for row in rows[0]] != [row["adapted_confidence"] for row in rows[1]]


@pytest.fixture(scope="module")
def cifar(data_root, tmp_path_factory):
    """Real images and a real network: the CIFAR-10 ResNet-20, as a checkpoint."""
    loaded = load_network("cifar:resnet20", str(data_root / "cifar10-jpeg" / "resnet20.safetensors"))
    card = CheckpointCard("cifar:resnet20", NAMES, loaded.preprocessing, head_bias=True, norm="batch")
    folder = tmp_path_factory.mktemp("cifar")
    save_checkpoint(folder / "network.safetensors", Checkpoint(card, loaded.network.state_dict()))
    files = sorted((data_root / "cifar10-jpeg" / "test").glob("*/*"))
    random.Random(0).shuffle(files)
    return folder, loaded, [file.read_bytes() for file in files[:2048]]


@pytest.fixture(scope="module")
def real(cifar):
    """The service with its own limits, except that a queue of 16 is too short for seventeen tenants."""
    folder, _, files = cifar
    service = Service(folder, "--workers", str(WORKERS), "--limit", "queue=32")
    try:
        service.wait().wait_for_workers(WORKERS)
        batches = [files[at : at + 16] for at in range(0, 16 * 32, 16)]
        yield Load(service, batches).measure(30, WORKERS + 2)
    finally:
        assert service.stop() == 0


def clean(found: dict) -> bool:
    return not any(found.get(kind) for kind in ("lost", "wrong", "doubled"))


def counts(found: dict) -> str:
    kinds = ("refused", "lost", "doubled", "wrong")
    others = ", ".join(f"{found[kind]:g} {kind}" for kind in kinds if kind in found)
    return f"{found['right']} answers as in the serial run, {others}"


class TestLong:
    """In half an hour on a quiet machine: `make test-load`."""

    pytestmark = [pytest.mark.load, pytest.mark.timeout(1500)]

    def test_holds(self, real):
        rows = [hold(real, 90, WORKERS, share) for share in (0.4, 0.5, 0.6, 0.7)]
        found = hold(real, 600, WORKERS)
        holds = clean(found) and not found["refused"] and found["memory"] <= 0.05
        text = (
            f"CIFAR-10 ResNet-20, {DEFAULT_METHOD}, {WORKERS} workers, requests of {len(real.batches[0])} JPEG images: "
            f"capacity {real.capacity:.1f} a second, {1000 * real.unloaded:.0f} ms unloaded. {counts(found)}. p99 "
            f"{found['ratio']:.1f} times; in an ideal queue with these arrivals {found['ideal_ratio']:.1f} times, and "
            f"{found['same_work_ratio']:.1f} times if its workers need the time that they needed here. "
            f"Memory {100 * found['memory']:+.1f} %"
        )
        rows.append(found)
        report.record("14 holds", measured=text, holds=holds and found["ratio"] <= 3, numbers=found, loads=rows)
        assert holds
        assert all(clean(row) for row in rows)
        assert found["right"] >= 459
        assert found["ratio"] <= max(3, 1.3 * found["same_work_ratio"])

    def test_degrades(self, real):
        found = overload(real, 120)
        holds = clean(found) and found["slowest_refusal"] <= 1 and found["recovery"] <= 10
        text = (
            f"{counts(found)}. Slowest refusal {found['slowest_refusal']:.2f} s; normal after {found['recovery']:.1f} s"
        )
        report.record("15 degrades", measured=text, holds=holds, numbers=found)
        assert holds

    def test_hostile_clients(self, real):
        found, large = slow_clients(real, 60, 200), large_uploads(real.service, 48_000_000, 16)
        kinds = ("image/png", "application/json")
        others = [real.service.ask("POST", "/predict", b"x", Content_Type=kind).status for kind in kinds]
        holds = clean(found) and found["slowest_cut"] <= 30 and found["p99_ratio"] <= 1.5 and others == [415, 400]
        holds = holds and large["statuses"].keys() <= {413, 503} and large["grown"] <= 2 * MAX_BUFFER
        statuses = ", ".join(f"{count} times {status}" for status, count in large["statuses"].items())
        text = (
            f"the last cut after {found['slowest_cut']:.1f} s. p99 of others {found['p99_ratio']:.2f} times, "
            f"{counts(found)}. 16 uploads of 48 MB at once: {statuses}, memory +{large['grown'] / 2**20:.0f} MiB"
        )
        report.record("16 hostile clients", measured=text, holds=holds, numbers={**found, **large})
        assert holds

    def test_isolation(self, real):
        found = asyncio.run(Tenants(real, 1000).run(kill_every=20))
        holds = found["right"] == 1000 and not any(kind.startswith("wrong") for kind in found)
        text = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))
        report.record("17 isolation", measured=text, holds=holds, numbers=found)
        assert holds

    def test_poison(self, real, cifar, data_root):
        rows = poisoned_rows(real.service, cifar[1], data_root / "cifar10" / "test.npz", batches=8, steps=20)
        adapted = ", ".join(f"{row['adapted']:.1f}" for row in rows)
        holds = len({row["source"] for row in rows}) == 1
        attack = "white-box gradient ascent on their adapted predictions, 20 steps, any pixels; CIFAR-10 ResNet-20"
        text = f"{adapted} %; the source model {rows[0]['source']:.1f} %"
        report.record("18 poison", measured=text, holds=holds, rows=rows, images=8 * 32, attack=attack)
        assert holds

    def test_killed_workers(self, real):
        found = kill_workers(real, 10, WORKERS)
        holds = clean(found) and found["streams"] == found["kills"]
        text = (
            f"under 40 % of capacity: {counts(found)}. Its streams, and only those, 410 in {found['streams']} of "
            f"{found['kills']} kills; a new worker after {found['slowest_restart']:.1f} s at most"
        )
        report.record("kill -9 of a worker", measured=text, holds=holds, numbers=found)
        assert holds

    def test_overhead(self, real, cifar):
        keep_freed_memory()  # as the workers do
        torch.set_num_threads(1)
        loaded = cifar[1]
        ratio, seconds = overhead(real.service, loaded.network, loaded.preprocessing, cifar[2][:64], repeats=40)
        text = f"{ratio:.3f} times {1000 * seconds:.0f} ms; medians of 40, in turn"
        report.record("overhead", measured=text, holds=ratio <= 1.1, ratio=ratio)
        assert ratio <= 1.1

    def test_layouts(self, cifar):
        folder, _, files = cifar
        batches = [files[at : at + 16] for at in range(0, 16 * 8, 16)]
        rows = []
        for workers, threads in ((1, 1), (1, 2), (2, 1), (2, 2)):
            service = Service(folder, "--workers", str(workers), "--threads", str(threads)).wait()
            service.wait_for_workers(workers)
            made = Load(service, batches).measure(15, workers + 2, repeats=4)
            rows.append({"workers": workers, "threads": threads, "capacity": made.capacity, "unloaded": made.unloaded})
            assert service.stop() == 0
        report.record("layouts", rows=rows, load=f"requests of 16 JPEG images, CIFAR-10 ResNet-20, {DEFAULT_METHOD}")


def poisoned_rows(service: Service, loaded, npz, *, batches: int, steps: int) -> list[dict]:
    """Return the accuracy of the first 32 images of batches of 40, by how many of the others are hostile."""
    held = np.load(npz)
    pixels = torch.from_numpy(held["images"]).permute(0, 3, 1, 2).float() / 255
    labels = torch.from_numpy(held["labels"]).long()
    mean, std = (torch.tensor(v)[:, None, None] for v in (loaded.preprocessing.mean, loaded.preprocessing.std))
    network = loaded.network.requires_grad_(False)
    rows = []
    for hostile in HOSTILE:
        right = {"source": 0, "adapted": 0}
        for start in range(0, 40 * batches, 40):
            clean, mates = pixels[start : start + 40 - hostile], pixels[start + 40 - hostile : start + 40]
            wanted = labels[start : start + 40 - hostile]
            if hostile:
                mates = attack(
                    Unrolled(network), clean, wanted, mates, steps=steps, normalize=lambda x: (x - mean) / std
                )
            answer = service.predict([png(image) for image in (*clean, *mates)])
            for row, label in zip(json.loads(answer.body)["predictions"][:32], wanted.tolist()[:32], strict=True):
                for which in right:
                    right[which] += row[f"{which}_prediction"] == NAMES[label]
        shares = {which: 100 * count / (32 * batches) for which, count in right.items()}
        rows.append({"hostile": hostile, "batch": 40, **shares})
    return rows


def overhead(service: Service, network, preprocessing, files: list[bytes], *, repeats: int) -> tuple[float, float]:
    """Return the time of a request over that of the same work in this process, and the latter in seconds."""
    adaptor, transform = da.adapt(network), preprocessing.transform()
    ours, theirs = [], []
    for _ in range(repeats + 3):
        start = time.perf_counter()
        images = torch.stack([transform(read_image_bytes(data)) for data in files])
        adaptor.source_logits(images)
        adaptor.adapt(images)
        ours.append(time.perf_counter() - start)
        theirs.append(service.predict(files).seconds)
    return statistics.median(theirs[3:]) / statistics.median(ours[3:]), statistics.median(ours[3:])

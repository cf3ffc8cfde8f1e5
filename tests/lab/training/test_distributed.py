"""Two processes train one network as one process would, if nothing depends on how the batch is shared."""

import json
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

from domainadaptor.lab.data.loaders import DomainBatch
from domainadaptor.lab.training import distributed


def test_one_process_alone_changes_nothing():
    batch = DomainBatch(torch.randn(5, 3, 2, 2), torch.arange(5), "a")
    assert distributed.local_share(batch) is batch
    assert distributed.world_size() == 1
    assert distributed.is_main_process()


def _work(rank: int, port: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3)
    x, y = torch.randn(8, 4), torch.arange(8) % 3
    part = distributed.local_share(DomainBatch(x, y, "a"))
    F.cross_entropy(net(part.images), part.labels).backward()
    distributed.average_gradients(net.parameters())
    norm = torch.nn.BatchNorm1d(4)
    norm.running_mean.fill_(float(rank))
    distributed.average_statistics(norm)
    torch.save({"grad": net.weight.grad, "mean": norm.running_mean, "labels": part.labels}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_gradients_and_statistics_are_averaged(tmp_path):
    mp.spawn(_work, args=(29517 + os.getpid() % 1000, str(tmp_path)), nprocs=2)
    one, other = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3)
    x, y = torch.randn(8, 4), torch.arange(8) % 3
    F.cross_entropy(net(x), y).backward()
    torch.testing.assert_close(one["grad"], net.weight.grad)
    assert torch.equal(one["grad"], other["grad"])
    assert torch.equal(one["mean"], torch.full((4,), 0.5))
    assert sorted([*one["labels"].tolist(), *other["labels"].tolist()]) == sorted(y.tolist())


@pytest.mark.slow
def test_torchrun_trains_from_the_command_line(tmp_path):
    environment = {**os.environ, "DOMAINADAPTOR_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29611",
        "-m", "domainadaptor", "train", "digits", "--network", "resnet20", "--weights", "none", "--size", "20",
        "--epochs", "2", "--batch-size", "60", "--lr", "0.05", "--head-lr", "1", "--target", "pen", "--device", "cpu",
        "--json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    record = json.loads(done.stdout)[0]  # printed once
    assert record["environment"]["processes"] == 2
    assert record["source_validation"]["accuracy"] > 15

"""`run` and `train` with `--engine ray` make the records of one process."""

import os
import subprocess
import sys

import pytest

from domainadaptor.lab.records.store import Store
from tests.cli.conftest import base
from tests.cli.small_experiment import OWN, arguments

__all__ = ["base"]
pytestmark = pytest.mark.slow
RAY = ("--engine", "ray", "--workers", "2")


@pytest.fixture(autouse=True)
def ray():
    pytest.importorskip("ray", reason="it needs the extra ray")


def program(folder, *words):
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "domainadaptor", *map(str, words)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_runs_have_the_same_records(base):
    found = []
    for more in ((), RAY):
        folder = base / f"results-{len(more)}"
        said = program(base, *arguments(base, *OWN), "--output", folder, *more)
        assert "[2/2] small: AdaBN on night" in said.stderr
        with Store(folder, readonly=True) as store:
            found.append({name: (run.scores, run.environment.threads) for name, run in store.runs().items()})
            assert len(store.manifests()) == 1
    assert len(found[0]) == 2
    assert found[0] == found[1]
    said = program(base, *arguments(base, *OWN), "--output", folder, *RAY)
    assert "[1/2]" not in said.stderr


def test_trainings_have_the_same_weights(base):
    folder, words = base / "pictures", ("train", "folders", "--network", "cifar:resnet20", "--weights", "none")
    words += ("--root", folder, "--epochs", "1", "--size", "24", "--batch-size", "8", "--device", "cpu", "--json")
    made = []
    for more in ((), RAY):
        place = base / f"trained-{len(more)}"
        program(base, *words, "--output", place, *more)
        runs = sorted(place.glob("runs/*"))
        made.append([(run.name, (run / "checkpoint.safetensors").read_bytes()) for run in runs])
    assert made[0]
    assert made[0] == made[1]

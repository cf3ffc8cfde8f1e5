"""Peak memory of one method above the network itself, in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

import domainadaptor
from domainadaptor.errors import AdaptationError
from domainadaptor.lab.bench.timing import BenchConfig, random_images
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.lab.peak_memory import PeakMemory


def peak_memory(setting: BenchConfig, method: str, options: Mapping[str, Any]) -> float | None:
    """Megabytes above network and images at the worst moment of a batch, "" for plain inference; None where unknown."""
    asked = json.dumps({"setting": asdict(setting), "method": method, "options": dict(options)})
    done = subprocess.run(
        [sys.executable, "-m", "domainadaptor.lab.bench.memory"],
        input=asked,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AdaptationError(f"measuring the memory of {method or 'plain inference'} failed: {done.stderr[-500:]}")
    answer: float | None = json.loads(done.stdout)
    return answer


def _measure(setting: BenchConfig, method: str, options: Mapping[str, Any]) -> float | None:
    network = find_network(setting.network).build(1000).to(setting.device).to(memory_format=torch.channels_last)
    images = random_images(setting)
    adaptor = domainadaptor.adapt(network, method, **options) if method else None
    memory = PeakMemory(setting.device)
    for _ in range(2):
        with memory:
            if adaptor is None:
                with torch.no_grad():
                    network(images)
            else:
                adaptor(images)
    return memory.megabytes()


if __name__ == "__main__":
    given = json.load(sys.stdin)
    json.dump(_measure(BenchConfig(**given["setting"]), given["method"], given["options"]), sys.stdout)

"""Peak memory of one method above the network itself, measured in a separate process."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

import domainadaptor
from domainadaptor.errors import AdaptationError
from domainadaptor.lab.allocator import keep_freed_memory
from domainadaptor.lab.bench.timing import BenchConfig, random_images
from domainadaptor.lab.measure import PeakMemory
from domainadaptor.lab.networks.zoo import find_network


def peak_memory(config: BenchConfig, method: str, options: Mapping[str, Any]) -> float | None:
    """Return peak megabytes of a method ("": the source model) above network and images; None where unknown."""
    request = json.dumps({"config": asdict(config), "method": method, "options": dict(options)})
    command = [sys.executable, "-m", "domainadaptor.lab.bench.memory"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AdaptationError(
            f"Measuring the memory of {method or 'the source model'} failed: {done.stderr[-500:].strip()}"
        )
    megabytes: float | None = json.loads(done.stdout)
    return megabytes


def _measure(config: BenchConfig, method: str, options: Mapping[str, Any]) -> float | None:
    network = find_network(config.network).build(1000).to(config.device).to(memory_format=torch.channels_last)
    images = random_images(config)
    predict = domainadaptor.adapt(network, method, **options) if method else network
    memory = PeakMemory(config.device)
    for _ in range(2):
        with memory.measured(), torch.set_grad_enabled(bool(method)):
            predict(images)
    return memory.megabytes()


if __name__ == "__main__":
    given = json.load(sys.stdin)
    if given["method"]:
        keep_freed_memory()
    json.dump(_measure(BenchConfig(**given["config"]), given["method"], given["options"]), sys.stdout)

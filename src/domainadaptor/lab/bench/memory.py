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
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.lab.peak_memory import PeakMemory


def peak_memory(config: BenchConfig, method: str, options: Mapping[str, Any]) -> float | None:
    """Return peak megabytes above network and images; None where the system does not report it.

    Args:
        config: What to measure.
        method: Name of the method; "" for plain inference.
        options: Options of the method.
    """
    request = json.dumps({"config": asdict(config), "method": method, "options": dict(options)})
    command = [sys.executable, "-m", "domainadaptor.lab.bench.memory"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AdaptationError(
            f"Measuring the memory of {method or 'plain inference'} failed: {done.stderr[-500:].strip()}"
        )
    megabytes: float | None = json.loads(done.stdout)
    return megabytes


def _measure(config: BenchConfig, method: str, options: Mapping[str, Any]) -> float | None:
    network = find_network(config.network).build(1000).to(config.device).to(memory_format=torch.channels_last)
    images = random_images(config)
    adaptor = domainadaptor.adapt(network, method, **options) if method else None
    memory = PeakMemory(config.device)
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
    if given["method"]:
        keep_freed_memory()
    json.dump(_measure(BenchConfig(**given["config"]), given["method"], given["options"]), sys.stdout)

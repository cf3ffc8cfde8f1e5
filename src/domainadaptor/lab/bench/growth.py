"""How cost grows: with the batch, the side of the images and the depth of the network, one at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from domainadaptor.lab.bench.memory import peak_memory
from domainadaptor.lab.bench.timing import BenchConfig
from domainadaptor.lab.networks.zoo import find_network
from domainadaptor.lab.peak_memory import available_memory

METHODS = ("adamixbn", "tent", "domainadaptor-t")
BATCH_SIZES = (1, 4, 16, 64, 256)
SIDES = (64, 128, 224, 320, 384)
NETWORKS = ("mobilenet_v2", "tf_efficientnet_lite0", "resnet18", "resnet50", "resnet101")
_ROOM = 0.8  # of the memory that is free; the rest is for everybody else
_PROBE = 8  # a batch this many times smaller tells what the whole one will take


def around(base: BenchConfig) -> Iterator[tuple[str, BenchConfig]]:
    """What changes, and the setting: each in turn away from the base, the others as they are."""
    yield from (("batch size", replace(base, batch_size=images)) for images in BATCH_SIZES)
    yield from (("side", replace(base, size=side)) for side in SIDES)
    yield from (("network", replace(base, network=find_network(name).name)) for name in NETWORKS)


def too_large(setting: BenchConfig, methods: Mapping[str, Mapping[str, Any]]) -> str:
    """Why a setting does not fit into memory, by a smaller batch of it; "" if it does, or nobody knows."""
    free = available_memory(setting.device)
    if setting.batch_size < _PROBE:
        return ""
    small = replace(setting, batch_size=setting.batch_size // _PROBE)
    peaks = [peak_memory(small, method, options) for method, options in methods.items()]
    wanted = max((peak for peak in peaks if peak is not None), default=0.0) * setting.batch_size / small.batch_size
    room = _ROOM * free / 1e6
    return "" if wanted <= room else f"wants about {wanted:,.0f} MB; {room:,.0f} MB may be used"

"""Time of ONNX files that adapt, relative to the ONNX file of the network itself."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from domainadaptor import single_forward
from domainadaptor.adaptation.single_forward import SINGLE_FORWARD
from domainadaptor.lab.bench.timing import BenchConfig, Timing, random_images, relative_costs, time_in_turn
from domainadaptor.lab.export.run import open_session, run_session
from domainadaptor.lab.export.write import exported


def time_onnx(
    config: BenchConfig, network: nn.Module, methods: Mapping[str, Mapping[str, Any]], progress: Callable[[str], None]
) -> list[Timing]:
    """Time the methods that have a single-forward form, name -> options, in interleaved rounds of onnxruntime."""
    images = random_images(config).contiguous()
    jobs: dict[str, Callable[[], object]] = {}
    loading = {}
    with TemporaryDirectory() as folder:
        for name, options in {"": {}, **methods}.items():
            if name and name not in SINGLE_FORWARD:
                continue
            progress(f"{config.network}: export {name or 'the network itself'}")
            path = Path(folder) / f"{name}.onnx"
            model = exported(single_forward(network, name or "source", **options), config.size, config.network)
            path.write_bytes(model.SerializeToString())
            start = time.perf_counter()
            jobs[name] = partial(run_session, open_session(path), images)
            loading[name] = 1000 * (time.perf_counter() - start)
    times = time_in_turn(config, jobs, progress)
    return [
        Timing(name, **relative_costs(config, times[name], times[""]), wrap_milliseconds=loading[name],
               reset_milliseconds=0.0, phases={})
        for name in jobs if name
    ]  # fmt: skip

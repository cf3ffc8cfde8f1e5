"""Options of methods and data sets, written on the command line as name=value."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainadaptor.cli.help import ADAPTATION, CLUSTER, DATA, NETWORK, option
from domainadaptor.errors import BadOption
from domainadaptor.options import parse_options

if TYPE_CHECKING:  # it takes seconds to import
    from domainadaptor.lab.cluster.start import Workers

_RESIZE = "For --weights FILE: pixels of the shorter side before the center crop; or squash (both sides to --size)."
_CROP = "For --weights FILE: share of the shorter side that is cropped, as in timm; in place of --resize."
_DATA = "An option of the data set, such as severity=3; repeatable."
_Color = tuple[float, float, float] | None

MethodOptions = Annotated[
    list[str] | None,
    option("NAME=VALUE", "An option of the method, such as lr=0.01; repeatable.", ADAPTATION, "--option"),
]
DataOptions = Annotated[list[str] | None, option("NAME=VALUE", _DATA, DATA, "--data-option")]
Resize = Annotated[str | None, option("PIXELS", _RESIZE, NETWORK)]
CropPct = Annotated[float | None, option("SHARE", _CROP, NETWORK)]
Mean = Annotated[_Color, option("R G B", "For --weights FILE: mean of its inputs, between 0 and 1.", NETWORK)]
Std = Annotated[_Color, option("R G B", "For --weights FILE: standard deviation of its inputs.", NETWORK)]
_ADDRESS = "Of a running Ray cluster, or auto. Default: Ray is started on this machine."
_THREADS = "CPU threads of each worker. Default: as many as one process uses here."
_GPUS = "GPUs of each worker; 0.5 lets two share one. Default: none."

Engine = Annotated[str, option("NAME", "process, or ray for many workers: see docs/cluster.md.", CLUSTER)]
Address = Annotated[str | None, option("ADDRESS", _ADDRESS, CLUSTER)]
WorkerCount = Annotated[int | None, option("N", "Default: as many as there are CPUs for.", CLUSTER, "--workers", min=1)]
Threads = Annotated[int | None, option("N", _THREADS, CLUSTER, "--threads-per-worker", min=1)]
Gpus = Annotated[float | None, option("X", _GPUS, CLUSTER, "--gpus-per-worker", min=0.001)]


def find_workers(
    engine: str,
    address: str | None,
    workers: int | None,
    threads: int | None,
    gpus: float | None,
    *,
    block: int | None = None,
) -> "Workers | None":
    """Return what was asked of a cluster; None for the engine "process", which takes none of these options."""
    if engine == "process":
        own = {"address": address, "workers": workers, "threads-per-worker": threads, "gpus-per-worker": gpus}
        own["block-size"] = block
        for name in (name for name, value in own.items() if value is not None):
            raise BadOption(f"--{name} is for --engine ray: add that, or leave out --{name}")
        return None
    if engine != "ray":
        raise BadOption(f"--engine {engine!r}: expected process or ray")
    from domainadaptor.extras import require_extra

    require_extra("ray", "--engine ray")
    import torch

    from domainadaptor.lab.cluster.start import Workers

    return Workers(address, workers, threads or torch.get_num_threads(), gpus or 0.0, block or 1)


def split_pairs(pairs: Iterable[str] | None, flag: str = "--option", example: str = "lr=0.01") -> dict[str, str]:
    """Return the texts of options written as name=value.

    Raises:
        BadOption: A pair is not of that form.
    """
    texts: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadOption(f"{flag} {pair!r}: expected name=value, as in {flag} {example}")
        texts[name.strip().replace("-", "_")] = text.strip()
    return texts


def parse_method_options(method: str, pairs: list[str] | None) -> dict[str, Any]:
    """Return the options of a method that the user typed, in the types that the method declares."""
    from domainadaptor.catalog import method_options

    return method_options(method, split_pairs(pairs), text=True, allow_import=True)


def parse_options_by_method(methods: Sequence[str], pairs: list[str] | None) -> dict[str, dict[str, Any]]:
    """Return the options of each of several methods; those of one of them are written as METHOD:NAME=VALUE.

    Raises:
        BadOption: An option does not name one of the methods, or the method does not take it.
    """
    own: dict[str, list[str]] = {method: [] for method in methods}
    for pair in pairs or ():
        method = next((name for name in methods if pair.startswith(f"{name}:")), None)
        if method is None and len(methods) > 1:
            raise BadOption(
                f"--option {pair!r}: with several methods, name one of them, as in --option {methods[-1]}:{pair}"
            )
        own[method or methods[0]].append(pair.removeprefix(f"{method}:"))
    return {method: parse_method_options(method, mine) for method, mine in own.items()}


def find_data(dataset: str, root: Path | None) -> tuple[str, Path | None]:
    """Return the name of a data set and its root; a folder in place of the name is a data set of folders."""
    from domainadaptor.lab.data.registry import datasets

    if dataset in datasets() or not Path(dataset).is_dir():
        return dataset, root
    if root is not None:
        raise BadOption(f"{dataset!r} is a folder, which is the data directory itself: leave out --root")
    return "folders", Path(dataset)


def parse_data_options(dataset: str, pairs: list[str] | None) -> dict[str, Any]:
    """Return the options of a data set, in the types that it declares."""
    from domainadaptor.lab.data.registry import find_dataset

    return parse_options(find_dataset(dataset), split_pairs(pairs, "--data-option", "severity=3"), dataset)

"""Measure what docs/cluster.md says about one machine, write docs/cluster.json, and write its tables into the page.

python tools/measure_cluster.py                 # on a quiet machine; half an hour
python tools/measure_cluster.py --page          # the tables alone, from docs/cluster.json
"""

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
METHODS = ("source", "auto", "adamixbn", "domainadaptor-t", "tent")
NETWORKS = ("resnet18", "resnet50")
IMAGES, BATCH, REPEATS = 64, 64, 3
FILES, CORES = 10**9, 1000


def seconds(work: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def folder(place: Path, count: int) -> None:
    """Write photographs of the usual size: smooth noise as JPEG."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    for at in range(count):
        small = Image.fromarray(rng.integers(0, 255, (24, 32, 3), dtype=np.uint8))
        small.resize((500, 375), Image.Resampling.BICUBIC).save(place / f"photograph-{at:08}.jpg", quality=90)


def measure_methods(place: Path) -> tuple[dict[str, dict[str, float]], float, dict[str, float]]:
    """Return images per second of one core by network and method, bytes per image, and the cost of the table."""
    import torch
    import torchvision

    import domainadaptor
    from domainadaptor.lab.cluster.partial_table import partial_table
    from domainadaptor.lab.cluster.predict import _packed
    from domainadaptor.lab.data.preprocessing import Preprocessing
    from domainadaptor.lab.prediction import BatchPredictor, FileList

    torch.set_num_threads(1)
    files, names = FileList.of(place), [str(number) for number in range(1000)]
    batch = list(range(IMAGES))
    speeds: dict[str, dict[str, float]] = {}
    for network in NETWORKS:
        built = getattr(torchvision.models, network)(num_classes=1000).eval()
        for method in METHODS:
            made = BatchPredictor(
                domainadaptor.adapt(built, method),
                Preprocessing(size=224, resize=256).transform(),
                torch.device("cpu"),
                names,
            )
            work = partial(made.predict, batch, files, lambda at: None)
            work()
            best = min(seconds(work) for _ in range(REPEATS))
            speeds.setdefault(network, {})[method] = IMAGES / best
    found = made.predict(batch, files, lambda at: None)
    moved = len(_packed(lambda: found)) + sum(len(files.name(at)) + 8 for at in batch)
    with tempfile.TemporaryDirectory() as beside, partial_table(Path(beside) / "x.csv", "") as table:
        commit = seconds(lambda: [table.add({number: found}) for number in range(1000)]) / 1000
    headers = min(seconds(lambda: files.check(range(IMAGES))) for _ in range(REPEATS)) / IMAGES
    return speeds, moved / IMAGES, {"commit": commit, "headers": headers}


class _Nothing:
    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"number": row["number"], "found": b""}


def measure_scheduling(rows: int, block: int) -> dict[str, float]:
    """Return the seconds of a start, of the first batch, and of each further batch that does nothing."""
    from domainadaptor.lab.cluster.start import Workers

    session = Workers(count=1).session()
    start = seconds(session.__enter__)
    import ray

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    given = [{"number": at, "positions": [at], "names": [b"photograph.jpg"]} for at in range(rows)]
    try:

        def work(count: int) -> None:
            data = ray.data.from_items(given[:count], override_num_blocks=-(-count // block))
            found = data.map(_Nothing, compute=ray.data.ActorPoolStrategy(size=1), num_cpus=1).iter_rows()
            assert sum(1 for _ in found) == count

        first = seconds(lambda: work(1))
        return {"start": start, "first": first, "batch": (seconds(lambda: work(rows)) - first) / rows, "rows": rows}
    finally:
        session.__exit__(None, None, None)


def page(found: dict[str, Any]) -> str:
    """Return the tables, and what they imply."""
    lines = ["| network | " + " | ".join(METHODS) + " |", "|---" * (len(METHODS) + 1) + "|"]
    for network, speeds in found["speeds"].items():
        lines.append(f"| {network} | " + " | ".join(f"{speeds[method]:.1f}" for method in METHODS) + " |")
    one, many, table = found["block 1"], found["block 16"], found["table"]
    auto = found["speeds"]["resnet18"]["auto"]
    batches = FILES / BATCH
    rate = CORES * auto / BATCH
    hours = FILES / (CORES * auto) / 3600
    driver = one["batch"] + table["commit"]
    relieved = many["batch"] + table["commit"]
    lines += [
        "",
        f"Images a second of one core of an {found['processor']}, with decoding, batches of {BATCH}, 224 x 224 pixels.",
        "",
        "| cost | measured |",
        "|---|---|",
        f"| start of Ray on this machine | {one['start']:.1f} s |",
        f"| first batch, with the start of a worker | {one['first']:.1f} s |",
        f"| each further batch, {one['rows']:,} of them, `--block-size 1` | {1e3 * one['batch']:.2f} ms |",
        f"| the same with `--block-size 16` | {1e3 * many['batch']:.2f} ms |",
        f"| adding a batch to the finished ones | {1e3 * table['commit']:.2f} ms |",
        f"| looking at the header of a file | {1e3 * table['headers']:.2f} ms |",
        f"| bytes moved per image, besides reading it | {found['moved']:.0f} |",
        "",
        f"What they imply for 10⁹ images on 1,000 cores, ResNet-18 with auto: {hours:.0f} hours of computing, "
        f"{rate:.0f} batches a second. The process of the command plans and keeps {1 / driver:.0f} batches a second "
        f"({1 / relieved:.0f} with `--block-size 16`), which is enough for {BATCH / driver / auto:,.0f} cores "
        f"({BATCH / relieved / auto:,.0f}). So "
        + (
            f"that process is where it stops scaling first: it alone needs {batches * driver / 3600:.0f} hours."
            if 1 / relieved < rate
            else "scheduling is not the first limit at this size; larger blocks and batches move it further."
        )
        + " Its list of files comes next, because it is in RAM as a whole. Divide the images into folders of some 10⁷ "
        "and give each its own command. What moves over the network, "
        f"{found['moved'] * FILES / 1e9:.0f} GB, does not matter beside the images themselves.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, and write the file and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the tables from docs/cluster.json")
    parser.add_argument("--rows", type=int, default=10**5, help="batches that do nothing")
    arguments = parser.parse_args()
    if not arguments.page:
        import torch

        from domainadaptor.lab.environment import environment

        with tempfile.TemporaryDirectory() as place:
            folder(Path(place), IMAGES)
            speeds, moved, table = measure_methods(Path(place))
        found = {
            "speeds": speeds,
            "moved": moved,
            "table": table,
            "block 1": measure_scheduling(arguments.rows, 1),
            "block 16": measure_scheduling(arguments.rows, 16),
            "processor": environment(torch.device("cpu"))["processor"],
        }
        (DOCS / "cluster.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    tables = page(json.loads((DOCS / "cluster.json").read_text(encoding="utf-8")))
    text = (DOCS / "cluster.md").read_text(encoding="utf-8")
    text = re.sub(r"(<!-- measured -->\n).*(<!-- end -->)", lambda m: m[1] + tables + "\n" + m[2], text, flags=re.S)
    (DOCS / "cluster.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

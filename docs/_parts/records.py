"""What the site takes from the records: docs/results/results.csv, and the rows of the experiment files."""

import csv
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CLONE = Path(__file__).parents[2]
RESULTS = CLONE / "docs" / "results" / "results.csv"
EXPERIMENTS = CLONE / "src" / "domainadaptor" / "lab" / "experiments" / "files"


class Bed(NamedTuple):
    """A test bed on which many methods were measured."""

    experiment: str
    table: str
    name: str


BEDS = (
    Bed("rivals", "PACS at 64x64, ResNet-20", "PACS, ResNet-20"),
    Bed("rivals", "Methods with many views, on 256 images per domain", "PACS, ResNet-20, 256 images"),
    Bed("cifar-methods", "CIFAR-10 at severity 5, ResNet-20", "CIFAR-10 noise, ResNet-20"),
    Bed("cifar-methods", "Methods with many views, on 256 images per domain", "CIFAR-10 noise, 256 images"),
)
SOURCE = ("source", "Source model", "DeepAll")  # how tables name the source model


class Number(NamedTuple):
    """The mean accuracy of a row on a test bed."""

    bed: Bed
    row: str
    accuracy: float
    gain: float  # points over the source model


@cache
def measured() -> list[dict[str, str]]:
    """Return the lines of results.csv that are done; none in an sdist, which has no results."""
    if not RESULTS.is_file():
        return []
    with RESULTS.open(encoding="utf-8") as file:
        return [line for line in csv.DictReader(file) if line["state"] == "done"]


@cache
def method_of(experiment: str) -> dict[str, str]:
    """Return the method of each row of an experiment."""
    text = (EXPERIMENTS / f"{experiment}.toml").read_text(encoding="utf-8")
    return {row: options.get("method", "") for row, options in tomllib.loads(text)["rows"].items()}


def numbers(bed: Bed) -> list[Number]:
    """Return the mean accuracy of each row on a test bed."""
    means = {
        line["row"]: float(line["value"])
        for line in measured()
        if (line["experiment"], line["table"], line["column"]) == (bed.experiment, bed.table, "mean")
        and line["measure"] == "accuracy, %"
    }
    source = next((means[name] for name in SOURCE if name in means), None)
    return [] if source is None else [Number(bed, row, mean, mean - source) for row, mean in means.items()]


def relative_times() -> dict[str, float]:
    """Return what a batch costs by row, in units of the source model, where several methods were timed together."""
    found: dict[str, float] = {}
    for line in measured():
        if line["experiment"] == "cifar-methods" and line["measure"] == "relative time":
            found.setdefault(line["row"], float(line["value"]))
    return found

"""`domainadaptor diagnose`: whether a network should be adapted to a folder of images, as a page or as JSON."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import DATA, option
from domainadaptor.errors import BadFile, BadOption

if TYPE_CHECKING:  # they take seconds to import
    from torch import Tensor

    from domainadaptor.lab.diagnosis.page import FolderDiagnosis

EXAMPLES = "domainadaptor diagnose checkpoint.safetensors new-images/"

_IMAGES = "A folder of images as the network will see them, with any subfolders. 256 or more are best."
_OUTPUT = "A page, report.html, or numbers, report.json; repeatable for both."


def diagnose(
    network: terminal.Network,
    images: Annotated[Path, typer.Argument(metavar="IMAGES", help=_IMAGES)],
    weights: terminal.Weights = None,
    classes: terminal.Classes = None,
    size: terminal.Size = None,
    resize: options.Resize = None,
    crop_pct: options.CropPct = None,
    mean: options.Mean = None,
    std: options.Std = None,
    root: terminal.Root = None,
    most: Annotated[int, option("N", "At most N images, chosen at random.", DATA, "--images", min=1)] = 512,
    batch_size: terminal.BatchSize = 64,
    output: Annotated[list[Path] | None, option("FILE", _OUTPUT)] = None,
    seed: terminal.Seed = 0,
    device: terminal.Device = "auto",
    as_json: terminal.Json = False,
) -> None:
    """Tell whether adapting to a folder of images will help.

    Writes a page, diagnosis.html by default: how far the images are from the training images, how many answers should
    be right before and after adapting, which change, and what to type next. No labels are needed.

    The exit code is 5 if the images do not suffice to tell.
    """
    from domainadaptor.adaptation.diagnose import diagnose as run
    from domainadaptor.lab.data.images import FolderImages
    from domainadaptor.lab.diagnosis.page import FolderDiagnosis
    from domainadaptor.lab.networks.inputs import InputOptions, read_classes
    from domainadaptor.lab.networks.loading import load_network

    outputs = output or [Path("diagnosis.html")]
    _check(outputs)
    terminal.check_weights(network, weights)
    names = () if classes is None else tuple(read_classes(classes))
    loaded = load_network(network, weights, InputOptions(resize, size, mean, std, names, crop_pct=crop_pct), root)
    given = FolderImages(images, loaded.preprocessing.transform(), seed=seed, limit=most, batch_size=batch_size)
    with terminal.progress_bar(total=len(given), what="images") as bar:

        def batches() -> "Iterator[Tensor]":
            done = 0
            for batch in given:
                yield batch
                bar.at(done := done + len(batch), len(given))

        found = run(loaded.network.to(terminal.find_device(device)), batches(), batch_size=batch_size)
    typed: dict[str, object] = {
        "--weights": weights,
        "--classes": classes,
        "--size": size,
        "--resize": resize,
        "--crop-pct": crop_pct,
    }
    typed |= {"--mean": mean, "--std": std, "--root": root}
    report = FolderDiagnosis(
        found, loaded, images, given.names(), _commands([network, str(images)], typed, found.best_batch_size)
    )
    _write(report, outputs)
    if as_json:
        terminal.print_json(report.as_json())
    else:
        for text in (found.headline, *found.sentences, found.advice, f"  {report.commands[found.method]}"):
            terminal.print_text(text)
        terminal.print_text(f"Written: {', '.join(map(str, outputs))}")
        terminal.show_notes([*loaded.notes, *found.warnings])
        terminal.show_skipped(given.skipped.items())
    if found.warnings:
        raise typer.Exit(terminal.Exit.DOUBTFUL)


def _check(outputs: list[Path]) -> None:
    for path in outputs:
        if path.suffix not in (".html", ".json"):
            raise BadOption(f"--output {str(path)!r}: expected the name of a .html or .json file")
        if not path.absolute().parent.is_dir():
            raise BadFile(f"No folder for --output {str(path)!r}; create it first")


def _commands(words: list[str], typed: dict[str, object], batch_size: int) -> dict[str, str]:
    """Return what to type for each method, with the options of the network that the user typed."""
    for name, value in typed.items():
        if value is not None:
            words = [*words, name, *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    predict = shlex.join(["domainadaptor", "predict", *words])
    return {
        "source": f"{predict} --method source",
        "auto": f"{predict} --method auto --batch-size {batch_size}",
        "calibrate": shlex.join(["domainadaptor", "calibrate", *words]) + " --output calibrated.safetensors",
    }


def _write(report: "FolderDiagnosis", outputs: list[Path]) -> None:
    from domainadaptor.lab.files import replacing

    for path in outputs:
        text = report.as_html() if path.suffix == ".html" else json.dumps(report.as_json(), indent=2) + "\n"
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

"""`domainadaptor predict`: predictions for images, adapted batch by batch, as a table."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import ADAPTATION, option
from domainadaptor.errors import BadFile

if TYPE_CHECKING:  # they take seconds to import
    from domainadaptor.lab.networks.loading import LoadedNetwork
    from domainadaptor.lab.prediction import FolderPrediction

_MAX_SOURCE_IMAGES = 2000  # as EATA's authors use
_IMAGES = "An image, or a folder of images with any subfolders: JPEG, PNG, WebP, TIFF, GIF, BMP, PPM, AVIF."
_SOURCE = f"For eata and adabn-source-and-test: images like the training images, at most {_MAX_SOURCE_IMAGES}."


def predict(
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
    method: terminal.Method = DEFAULT_METHOD,
    method_option: options.MethodOptions = None,
    source_images: Annotated[Path | None, option("DIR", _SOURCE, ADAPTATION)] = None,
    batch_size: terminal.BatchSize = 64,
    output: Annotated[Path, option("FILE", "The table to write.")] = Path("predictions.csv"),
    seed: terminal.Seed = 0,
    device: terminal.Device = "auto",
    as_json: terminal.Json = False,
) -> None:
    """Predict a folder of images, without and with adaptation.

    Writes a CSV file with one row per file, in file order: the prediction of the source model, the prediction after
    adaptation, or why the file was skipped. Batches are shuffled, because a folder is often sorted by class.

    The exit code is 5 if the predictions look worse than the source model's.
    """
    from domainadaptor import adapt
    from domainadaptor.lab.method_inputs import check_wants_source_images, options_from
    from domainadaptor.lab.networks.inputs import InputOptions, read_classes
    from domainadaptor.lab.networks.loading import load_network
    from domainadaptor.lab.prediction import predict_folder, write_csv

    if not output.absolute().parent.is_dir():
        raise BadFile(f"No folder for --output {str(output)!r}; create it first")
    typed = options.parse_method_options(method, method_option)
    if source_images is not None:
        check_wants_source_images(method, "--source-images")
    terminal.check_weights(network, weights)
    chosen = terminal.find_device(device)
    names = () if classes is None else tuple(read_classes(classes))
    inputs = InputOptions(resize, size, mean, std, names, crop_pct=crop_pct)
    loaded = load_network(network, weights, inputs, root)
    given = {} if source_images is None else _inputs(method, source_images, images, loaded, batch_size, seed)
    known = options_from(method, heads=loaded.heads, preprocessing=loaded.preprocessing, seed=seed, **given)
    adaptor = adapt(loaded.network.to(chosen), method, **{**known, **typed})
    with terminal.progress_bar(total=0, what="images") as bar:
        found = predict_folder(
            adaptor,
            images,
            exclude=output,  # the table of an earlier run
            classes=loaded.classes,
            transform=loaded.preprocessing.transform(),
            device=chosen,
            batch_size=batch_size,
            seed=seed,
            progress=bar.at,
        )
    skipped = [(row.file, row.skipped) for row in found.rows if row.skipped]
    if not found.predicted:
        terminal.show_skipped(skipped)
        raise BadFile(
            f"None of the {len(found.rows)} files in {str(images)!r} is a readable image; nothing was written"
        )
    write_csv(found, output)
    _show(found, loaded, output, as_json)
    terminal.show_skipped([] if as_json else skipped)
    terminal.show_warning(f"the predictions of {method}", found.warnings)
    if found.warnings:
        raise typer.Exit(terminal.Exit.DOUBTFUL)
    if any(row.is_broken_image for row in found.rows):
        raise typer.Exit(terminal.Exit.SOME_SKIPPED)


def _inputs(
    method: str, source: Path, target: Path, loaded: "LoadedNetwork", batch_size: int, seed: int
) -> dict[str, Any]:
    """Return what a method reads before the first batch: source images and, for some, the images to predict."""
    from domainadaptor import method_info
    from domainadaptor.lab.data.images import FolderImages

    transform = loaded.preprocessing.transform()
    try:
        known = FolderImages(source, transform, seed=seed, limit=_MAX_SOURCE_IMAGES, batch_size=batch_size)
    except BadFile as error:
        raise BadFile(f"--source-images: {error}") from error
    if "target_images" not in method_info(method).defaults:
        return {"source_images": known}
    return {"source_images": known, "target_images": FolderImages(target, transform, seed=seed, batch_size=batch_size)}


def _show(found: "FolderPrediction", loaded: "LoadedNetwork", output: Path, as_json: bool) -> None:
    predicted, skipped = len(found.predicted), len(found.rows) - len(found.predicted)
    notes = [*loaded.notes, *found.notes]
    if as_json:
        counts = {"predicted": predicted, "changed": found.changed, "skipped": skipped}
        rows, preprocessing = [asdict(row) for row in found.rows], asdict(loaded.preprocessing)
        fields = {
            "network": loaded.name,
            "preprocessing": preprocessing,
            "notes": notes,
            "warnings": found.warnings,
            "rows": rows,
        }
        terminal.print_json({"output": str(output), **counts, **fields})
        return
    images = terminal.count(predicted, "image")
    terminal.print_text(f"{images} predicted, {found.changed} changed by adaptation, {skipped} skipped: {output}")
    terminal.print_text(f"Preprocessing: {loaded.preprocessing_sentence()}.")
    terminal.show_notes(notes)

"""`domainadaptor predict`: predictions for a folder of images, adapted batch by batch, as a table."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domainadaptor.cli.help import ADAPTATION
from domainadaptor.cli.options import Mean, MethodOptions, Resize, Std, parse_method_options
from domainadaptor.cli.terminal import (
    BatchSize,
    Classes,
    Device,
    Exit,
    Json,
    Method,
    Network,
    Root,
    Seed,
    Size,
    Weights,
    check_weights,
    err,
    find_device,
    print_json,
    print_text,
    progress_bar,
    show_notes,
)
from domainadaptor.errors import BadFile

if TYPE_CHECKING:  # they take seconds to import
    from domainadaptor.lab.networks.loading import LoadedNetwork
    from domainadaptor.lab.prediction import FolderPrediction

_MAX_SOURCE_IMAGES = 2000  # as EATA's authors use


def predict(
    network: Network,
    images: Annotated[Path, typer.Argument(metavar="IMAGES_DIR", help="A folder of images, with any subfolders.")],
    weights: Weights = None,
    classes: Classes = None,
    size: Size = None,
    resize: Resize = None,
    mean: Mean = None,
    std: Std = None,
    root: Root = None,
    method: Method = "domainadaptor-t",
    option: MethodOptions = None,
    source_images: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=ADAPTATION,
            help="For eata and adabn-source-and-test: a folder of images like the training images; at most "
            f"{_MAX_SOURCE_IMAGES} are used.",
        ),
    ] = None,
    batch_size: BatchSize = 64,
    output: Annotated[Path, typer.Option(metavar="FILE", help="The table to write.")] = Path("predictions.csv"),
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Predict a folder of images, before and after adaptation.

    Writes a CSV file with one row per file, in file order: the prediction of the source model, the prediction after
    adaptation, or why the file was skipped. Batches are shuffled, because a folder is often sorted by class.
    """
    from domainadaptor import adapt
    from domainadaptor.lab.method_inputs import check_wants_source_images, options_from
    from domainadaptor.lab.networks.loading import load_network
    from domainadaptor.lab.networks.weights import WeightsOptions
    from domainadaptor.lab.prediction import predict_folder, read_classes, write_csv

    if not output.absolute().parent.is_dir():
        raise BadFile(f"No folder for --output {str(output)!r}; create it first")
    typed = parse_method_options(method, option)
    if source_images is not None:
        check_wants_source_images(method, "--source-images")
    check_weights(network, weights)
    chosen = find_device(device)
    loaded = load_network(network, weights, read_classes(classes) if classes is not None else [], root)
    loaded = loaded.with_size(size).with_options(WeightsOptions(resize, mean=mean, std=std))
    given = {} if source_images is None else _inputs(method, source_images, images, loaded, batch_size, seed)
    options = options_from(method, heads=loaded.heads, preprocessing=loaded.preprocessing, seed=seed, **given)
    adaptor = adapt(loaded.network.to(chosen), method, **{**options, **typed})
    with progress_bar(total=0, what="images") as bar:
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
    if not found.predicted:
        _show_skipped(found)
        raise BadFile(
            f"None of the {len(found.rows)} files in {str(images)!r} is a readable image; nothing was written"
        )
    write_csv(found, output)
    _show(found, loaded, output, as_json)
    if any(row.is_broken_image for row in found.rows):
        raise typer.Exit(Exit.SOME_SKIPPED)


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
    counts = {"predicted": len(found.predicted), "changed": found.changed, "skipped": len(found.skipped)}
    notes = [*loaded.notes, *found.notes]
    if as_json:
        rows = [asdict(row) for row in found.rows]
        preprocessing = asdict(loaded.preprocessing)
        fields = {"network": loaded.name, "preprocessing": preprocessing, "notes": notes, "rows": rows}
        print_json({"output": str(output), **counts, **fields})
        return
    images = "1 image" if counts["predicted"] == 1 else f"{counts['predicted']} images"
    files = "1 file" if counts["skipped"] == 1 else f"{counts['skipped']} files"
    print_text(f"{images} predicted, {counts['changed']} predictions changed by adaptation, {files} skipped: {output}")
    print_text(f"Preprocessing: {loaded.preprocessing.sentence()}.")
    show_notes(notes)
    _show_skipped(found)


def _show_skipped(found: "FolderPrediction") -> None:
    for row in found.skipped:
        print_text(f"skipped {row.file}: {row.skipped}", err)

"""`domainadaptor predict`: a folder of images, adapted batch by batch, into a table."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domainadaptor.cli.options import Mean, MethodOptions, Resize, Std, parse_method_options
from domainadaptor.cli.terminal import (
    BatchSize,
    Device,
    Exit,
    Json,
    Network,
    Root,
    Seed,
    err,
    find_device,
    out,
    print_json,
    progress_bar,
    show_notes,
)
from domainadaptor.errors import BadFile, BadOption

if TYPE_CHECKING:  # they take seconds to import
    from PIL import Image
    from torch import Tensor

    from domainadaptor.lab.data.images import FolderImages
    from domainadaptor.lab.prediction import FolderPrediction

_MOST_SOURCE_IMAGES = 2000  # what EATA's authors take; more tell little more


def predict(
    network: Network,
    images: Annotated[Path, typer.Argument(metavar="IMAGES_DIR", help="A folder of images, at any depth.")],
    weights: Annotated[
        str | None,
        typer.Option(
            help="For a network by name: a .safetensors, .pt or .pth file; or pretrained: published weights that are "
            "on this machine. Nothing is downloaded."
        ),
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option(help="Class names, one a line or a JSON list; those of ImageNet or numbers otherwise."),
    ] = None,
    root: Root = None,
    method: Annotated[str, typer.Option(help="See domainadaptor methods.")] = "domainadaptor-t",
    option: MethodOptions = None,
    source_images: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="For eata and adabn-source-and-test: a folder of images like those of the training, at any depth; "
            f"{_MOST_SOURCE_IMAGES} of them are taken.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="Where the table goes.")] = Path("predictions.csv"),
    size: Annotated[int | None, typer.Option(min=1, help="Input side; the network's own otherwise.")] = None,
    resize: Resize = None,
    mean: Mean = None,
    std: Std = None,
    device: Device = "auto",
    batch_size: BatchSize = 64,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Predict a folder of images with the network as it is and adapted, one row a file, in file order."""
    import domainadaptor
    from domainadaptor.lab.method_inputs import check_wants_source_images, options_from
    from domainadaptor.lab.networks.loading import is_weights_file, load_network
    from domainadaptor.lab.networks.weights import WeightsOptions
    from domainadaptor.lab.prediction import predict_folder, read_classes, write_csv

    if not output.absolute().parent.is_dir():
        raise BadFile(f"no folder for --output {str(output)!r}; make it first")
    chosen = parse_method_options(method, option)
    if source_images is not None:
        check_wants_source_images(method, "--source-images")
    if weights in (None, "none") and not is_weights_file(network):
        raise BadOption(
            f"with which weights? say --weights FILE, or --weights pretrained for published ones that are on this "
            f"machine; or give a checkpoint that `domainadaptor train` wrote in place of {network!r}"
        )
    place = find_device(device)
    opened = load_network(network, weights, read_classes(classes) if classes is not None else [], root)
    opened = opened.at(size).prepared(WeightsOptions(resize, mean=mean, std=std))
    transform = opened.preprocessing.transform()
    own = {} if source_images is None else _images_before(method, source_images, images, transform, batch_size, seed)
    options = options_from(method, heads=opened.heads, preprocessing=opened.preprocessing, seed=seed, **own)
    adaptor = domainadaptor.adapt(opened.network.to(place), method, **{**options, **chosen})
    with progress_bar(total=0) as bar:
        found = predict_folder(
            adaptor,
            images,
            leave_out=output,  # the table of an earlier run
            classes=opened.classes,
            transform=transform,
            device=place,
            batch_size=batch_size,
            seed=seed,
            progress=bar.at,
        )
    if not found.predicted:
        _show_skipped(found)
        raise BadFile(
            f"none of the {len(found.rows)} files below {str(images)!r} is a readable image; nothing was written"
        )
    write_csv(found, output)
    summary = _summary(found, output) | {"notes": [*opened.notes, *found.notes]}
    if as_json:
        print_json(
            {
                **summary,
                "network": opened.name,
                "preprocessing": asdict(opened.preprocessing),
                "rows": [asdict(row) for row in found.rows],
            }
        )
    else:
        _show(summary, found)
        out.print(f"Each image: {opened.preprocessing.sentence()}.", highlight=False, soft_wrap=True)
    if any(row.damaged for row in found.rows):
        raise typer.Exit(Exit.SOME_SKIPPED)


def _images_before(
    method: str, source: Path, target: Path, transform: "Callable[[Image.Image], Tensor]", batch_size: int, seed: int
) -> "dict[str, FolderImages]":
    """What a method looks at before the first batch: images like those of the training, and those to predict."""
    from domainadaptor import method_info
    from domainadaptor.lab.data.images import FolderImages

    try:
        known = FolderImages(source, transform, seed=seed, limit=_MOST_SOURCE_IMAGES, batch_size=batch_size)
    except BadFile as error:
        raise BadFile(f"--source-images: {error}") from error
    if "target_images" not in method_info(method).defaults:
        return {"source_images": known}
    return {"source_images": known, "target_images": FolderImages(target, transform, seed=seed, batch_size=batch_size)}


def _summary(found: "FolderPrediction", output: Path) -> dict[str, Any]:
    changed = sum(row.source_prediction != row.adapted_prediction for row in found.predicted)
    return {
        "output": str(output),
        "predicted": len(found.predicted),
        "changed": changed,
        "skipped": len(found.skipped),
    }


def _show(summary: Mapping[str, Any], found: "FolderPrediction") -> None:
    out.print(
        f"{summary['predicted']} images predicted, {summary['changed']} answers changed by adaptation, "
        f"{summary['skipped']} files skipped: {summary['output']}",
        highlight=False,
        soft_wrap=True,
    )
    show_notes(summary["notes"])
    _show_skipped(found)


def _show_skipped(found: "FolderPrediction") -> None:
    for row in found.skipped:
        err.print(f"skipped {row.file}: {row.skipped}", markup=False, highlight=False, soft_wrap=True)

"""`domainadaptor predict`: a folder of images, adapted batch by batch, into a table."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import domainadaptor
from domainadaptor.cli.options import MethodOptions, parse_options
from domainadaptor.cli.terminal import (
    BatchSize,
    Device,
    Exit,
    Json,
    Seed,
    err,
    find_device,
    out,
    print_json,
    progress_bar,
)
from domainadaptor.errors import BadFile
from domainadaptor.prediction import FolderPrediction, predict_folder, read_classes, write_csv


def predict(
    network: Annotated[
        str, typer.Argument(help="A torchvision or timm name, as resnet50 or timm:mobilenetv3_small_100.")
    ],
    images: Annotated[Path, typer.Argument(metavar="IMAGES_DIR", help="A folder of images, at any depth.")],
    weights: Annotated[Path, typer.Option(help="A .safetensors, .pt or .pth file; nothing is downloaded.")],
    classes: Annotated[
        Path | None, typer.Option(help="Class names, one a line or a JSON list; numbers otherwise.")
    ] = None,
    method: Annotated[str, typer.Option(help="See domainadaptor methods.")] = "domainadaptor-t",
    option: MethodOptions = None,
    output: Annotated[Path, typer.Option(help="Where the table goes.")] = Path("predictions.csv"),
    size: Annotated[int | None, typer.Option(min=1, help="Input side; the network's own otherwise.")] = None,
    device: Device = "auto",
    batch_size: BatchSize = 64,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Predict a folder of images with the network as it is and adapted, one row a file, in file order."""
    if not output.absolute().parent.is_dir():
        raise BadFile(f"no folder for --output {str(output)!r}; make it first")
    from domainadaptor.networks.build import build_network  # timm and torchvision take seconds to import
    from domainadaptor.networks.zoo import blueprint

    plan = blueprint(network)
    place = find_device(device)
    names = read_classes(classes) if classes is not None else []
    built, count = build_network(plan, weights, names, seed)
    options = parse_options(option or [])
    if "seed" in domainadaptor.options_of(method):
        options.setdefault("seed", seed)
    adaptor = domainadaptor.adapt(built.to(place), method, **options)
    preprocessing = plan.preprocessing if size is None else plan.preprocessing.at(size)
    with progress_bar(total=0) as bar:
        found = predict_folder(
            adaptor,
            images,
            leave_out=output,  # the table of an earlier run
            classes=names or [str(k) for k in range(count)],
            transform=preprocessing.transform(),
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
    if as_json:
        print_json(
            _summary(found, output) | {"preprocessing": asdict(preprocessing), "rows": [asdict(r) for r in found.rows]}
        )
    else:
        _show(found, output)
        out.print(f"Each image: {preprocessing.sentence()}.", highlight=False, soft_wrap=True)
    if any(row.damaged for row in found.rows):
        raise typer.Exit(Exit.SOME_SKIPPED)


def _summary(found: FolderPrediction, output: Path) -> dict[str, object]:
    changed = sum(row.source_prediction != row.adapted_prediction for row in found.predicted)
    return {
        "output": str(output),
        "predicted": len(found.predicted),
        "changed": changed,
        "skipped": len(found.skipped),
        "notes": list(found.notes),
    }


def _show(found: FolderPrediction, output: Path) -> None:
    summary = _summary(found, output)
    out.print(
        f"{summary['predicted']} images predicted, {summary['changed']} answers changed by adaptation, "
        f"{summary['skipped']} files skipped: {output}",
        highlight=False,
        soft_wrap=True,
    )
    for note in found.notes:
        err.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    _show_skipped(found)


def _show_skipped(found: FolderPrediction) -> None:
    for row in found.skipped:
        err.print(f"skipped {row.file}: {row.skipped}", markup=False, highlight=False, soft_wrap=True)

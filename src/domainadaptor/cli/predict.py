"""`domainadaptor predict`: predictions for images, adapted batch by batch, as a table."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import ADAPTATION, CLUSTER, option
from domainadaptor.errors import BadFile, BadOption

if TYPE_CHECKING:  # they take seconds to import
    from domainadaptor.adaptation.adaptor import Adaptor
    from domainadaptor.lab.cluster.start import Workers
    from domainadaptor.lab.networks.loading import LoadedNetwork
    from domainadaptor.lab.prediction import FolderPrediction, PredictionJob

EXAMPLES = r"""
domainadaptor predict checkpoint.safetensors images/
domainadaptor predict checkpoint.safetensors images/ \
    --method domainadaptor-t --option lr=0.01 --batch-size 32
"""

_NETWORK = f"{terminal.NETWORK_HELP} Or an ONNX file that `export` wrote."
# What an ONNX file has already, or cannot do.
_NOT_FOR_ONNX = ("weights", "classes", "size", "resize", "crop_pct", "mean", "std", "root", "method_option",
                 "source_images", "address", "workers", "threads", "gpus", "block_size", "stream_by")  # fmt: skip
_MAX_SOURCE_IMAGES = 2000  # as EATA's authors use
_IMAGES = "An image, or a folder of images with any subfolders: JPEG, PNG, WebP, TIFF, GIF, BMP, PPM, AVIF."
_BLOCK = "Batches that a worker gets at a time. Default: 1."
_STREAM = "For online methods: each folder directly in this one is a stream of its own."
_NOT_SETTINGS = ("images", "output", "as_json", "engine", "address", "workers", "threads", "gpus", "block_size")
_SOURCE = f"For eata and adabn-source-and-test: images like the training images, at most {_MAX_SOURCE_IMAGES}."


def predict(
    context: typer.Context,
    network: Annotated[str, typer.Argument(metavar="NETWORK", help=_NETWORK)],
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
    engine: options.Engine = "process",
    address: options.Address = None,
    workers: options.WorkerCount = None,
    threads: options.Threads = None,
    gpus: options.Gpus = None,
    block_size: Annotated[int | None, option("N", _BLOCK, CLUSTER, min=1)] = None,
    stream_by: Annotated[Path | None, option("FOLDER", _STREAM, ADAPTATION)] = None,
    as_json: terminal.Json = False,
) -> None:
    """Predict a folder of images, without and with adaptation.

    Writes a .csv or .parquet file with one row per file, in file order: the prediction of the source model, the
    prediction after adaptation, or why the file was skipped. Batches are shuffled, because a folder is often sorted
    by class.

    The exit code is 5 if the predictions look worse than the source model's.
    """
    from domainadaptor import adapt
    from domainadaptor.lab.cluster.partial_table import partial_files
    from domainadaptor.lab.method_inputs import check_wants_source_images, options_from
    from domainadaptor.lab.networks.inputs import InputOptions, read_classes
    from domainadaptor.lab.networks.loading import load_network
    from domainadaptor.lab.prediction import BatchPredictor, FileList, PredictionJob, check_output, write_table

    check_output(output)
    if network.lower().endswith(".onnx"):
        _predict_onnx(context.params)
        return
    cluster = options.find_workers(engine, address, workers, threads, gpus, block=block_size)
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
    files = FileList.of(images, exclude=[output, *partial_files(output)])  # of an earlier run
    predictor = BatchPredictor(adaptor, loaded.preprocessing.transform(), chosen, loaded.classes)
    job = PredictionJob(predictor, files, batch_size, seed, _stream_folder(stream_by, images, method, adaptor))
    settings = {name: value for name, value in context.params.items() if name not in _NOT_SETTINGS}
    with ExitStack() as stack:
        with terminal.progress_bar(total=0, what="images") as bar:
            found = stack.enter_context(_predictions(job, output, settings, cluster, bar))
        if found.predicted:
            write_table(found.rows, output)
            _show(found, loaded, output, as_json)
    _exit(found, method, images, as_json)


def _predict_onnx(given: dict[str, Any]) -> None:
    from domainadaptor.lab.export.run import OnnxNetwork, without_source
    from domainadaptor.lab.prediction import BatchPredictor, FileList, PredictionJob, predict_folder, write_table

    path, images, method, output = given["network"], given["images"], given["method"], given["output"]
    file = OnnxNetwork(Path(path))
    unused = [name for name in _NOT_FOR_ONNX if given[name]]
    unused += ["method"] * (method not in (DEFAULT_METHOD, file.card.method)) + ["engine"] * (
        given["engine"] != "process"
    )
    if unused:
        words = ", ".join("--option" if name == "method_option" else f"--{name.replace('_', '-')}" for name in unused)
        raise BadOption(
            f"{path!r} has weights, classes, preprocessing and the method {file.card.method}: leave out {words}"
        )
    files = FileList.of(images, exclude=[output])
    transform, device = file.card.preprocessing.transform(), terminal.find_device("cpu")
    predictor = BatchPredictor(file, transform, device, file.card.classes)  # type: ignore[arg-type]  # it answers as one
    with terminal.progress_bar(total=0, what="images") as bar:
        found = predict_folder(PredictionJob(predictor, files, given["batch_size"], given["seed"], None), bar.at)
    if file.card.method != "source":
        found = without_source(found)
    if found.predicted:
        write_table(found.rows, output)
        _show(found, file.loaded(), output, given["as_json"], compared=file.card.method == "source")
    _exit(found, file.card.method, images, given["as_json"])


@contextmanager
def _predictions(
    job: "PredictionJob", output: Path, settings: dict[str, Any], workers: "Workers | None", bar: terminal.Bar
) -> Iterator["FolderPrediction"]:
    """Yield the predictions of this process, or of the workers of a cluster."""
    if workers is None:
        from domainadaptor.lab.prediction import predict_folder

        yield predict_folder(job, bar.at)
        return
    from domainadaptor.lab.cluster.predict import predict_on_cluster

    if job.is_online:
        what = "each folder is a stream" if job.stream_by else "all images are one stream, which --stream-by divides"
        terminal.show_notes([f"the method learns from batch to batch, so {what}; a stream runs on one worker"])
    try:
        with predict_on_cluster(job, output, settings, workers, bar.at) as found:
            yield found
    except KeyboardInterrupt:
        terminal.print_text("Interrupted; repeat the command to resume with the next batch.", terminal.err)
        raise typer.Exit(terminal.Exit.INTERRUPTED) from None


def _stream_folder(given: Path | None, images: Path, method: str, adaptor: "Adaptor") -> Path | None:
    """Return the folder whose folders are streams."""
    if given is not None and adaptor.reset_every == 1:
        raise BadOption(f"{method} keeps nothing between batches, so it has no streams: leave out --stream-by")
    return images if str(given).lower() == "folder" else given


def _exit(found: "FolderPrediction", method: str, images: Path, as_json: bool) -> None:
    """Report what was skipped and what looks like harm, and set the exit code."""
    skipped = [(row.file, row.skipped) for row in found.skipped]
    if not found.predicted:
        terminal.show_skipped(skipped)
        raise BadFile(f"None of the {len(skipped)} files in {str(images)!r} is a readable image; nothing was written")
    terminal.show_skipped([] if as_json else skipped)
    terminal.show_warning(f"the predictions of {method}", found.warnings)
    if found.warnings:
        raise typer.Exit(terminal.Exit.DOUBTFUL)
    if any(row.is_broken_image for row in found.skipped):
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


def _show(
    found: "FolderPrediction", loaded: "LoadedNetwork", output: Path, as_json: bool, compared: bool = True
) -> None:
    predicted, skipped = found.predicted, len(found.skipped)
    notes = [*loaded.notes, *found.notes]
    changed = found.changed if compared else None
    if as_json:
        counts = {"predicted": predicted, "changed": changed, "skipped": skipped}
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
    by_adaptation = "" if changed is None else f" {changed} changed by adaptation,"
    terminal.print_text(f"{images} predicted,{by_adaptation} {skipped} skipped: {output}")
    terminal.print_text(f"Preprocessing: {loaded.preprocessing_sentence()}.")
    terminal.show_notes(notes)

"""`domainadaptor train`: train networks on source domains, one for each domain that is left out."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from domainadaptor.cli.options import DataOptions, parse_data_options, split_pairs
from domainadaptor.cli.terminal import (
    Device,
    Exit,
    Json,
    Root,
    Seed,
    err,
    find_device,
    out,
    print_json,
    show_notes,
    training_bar,
)
from domainadaptor.errors import BadOption
from domainadaptor.options import parse_options

if TYPE_CHECKING:  # it takes seconds to import
    from domainadaptor.lab.data.domains import DomainDataset


def train(
    dataset: Annotated[str, typer.Argument(help="pacs, vlcs, office-home, digits, folders …: see `data list`.")],
    target: Annotated[
        list[str] | None, typer.Option(help="The domain that is left out; may be repeated; all in turn otherwise.")
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option(help="Train on these domains alone, once; the others are targets.")
    ] = None,
    root: Root = None,
    data_option: DataOptions = None,
    network: Annotated[str, typer.Option(help="A torchvision, timm or CIFAR network, as resnet18.")] = "resnet18",
    weights: Annotated[
        str,
        typer.Option(help="pretrained: published weights that are on this machine; none; a file; the name of a run."),
    ] = "pretrained",
    algorithm: Annotated[str, typer.Option(help="erm, mldg, fsdcl, mvrml, arm …: see `algorithms`.")] = "erm",
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the algorithm; may be repeated.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="A task beside ERM: rotation, jigsaw.")] = None,
    select: Annotated[str, typer.Option(help="Which weights to keep: best, last or swad.")] = "best",
    select_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of it, as ratio=0.2 of swad.")
    ] = None,
    norm: Annotated[str, typer.Option(help="batch, or iabn (for NOTE).")] = "batch",
    size: Annotated[int | None, typer.Option(min=1, help="Side of the images; the network's own otherwise.")] = None,
    epochs: Annotated[
        int, typer.Option(min=1, help="One takes as many images as the sources have, as many of each domain.")
    ] = 30,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per step, over all source domains.")] = 128,
    lr: Annotated[float, typer.Option(help="Learning rate of the body; the head's is ten times that.")] = 1e-3,
    head_lr: Annotated[float, typer.Option(help="The head's rate, as a multiple of --lr.")] = 10.0,
    weight_decay: Annotated[float, typer.Option(help="Of all parameters.")] = 5e-4,
    schedule: Annotated[str, typer.Option(help="step: a tenth after 80 % of the epochs; or cosine.")] = "step",
    warmup: Annotated[float, typer.Option(help="Epochs of a rising rate.")] = 0.0,
    head_bias: Annotated[bool, typer.Option(help="A head with a bias; the paper's has none.")] = False,
    precision: Annotated[str, typer.Option(help="float32, or bfloat16 for mixed precision.")] = "float32",
    seed: Seed = 0,
    device: Device = "auto",
    output: Annotated[
        Path | None, typer.Option(help="Folder for runs; they are found again there. Your cache otherwise.")
    ] = None,
    cache: Annotated[bool, typer.Option(help="Keep decoded images on disk.")] = True,
    as_json: Json = False,
) -> None:
    """Train a network on several domains, leaving one out in turn; the same command again goes on where it stopped."""
    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.data.registry import differs_from_published, open_dataset
    from domainadaptor.lab.training.distributed import is_main_process, torchrun_group
    from domainadaptor.lab.training.recipe import find_algorithm, find_start_weights, make_recipe
    from domainadaptor.lab.training.selection import find_selection
    from domainadaptor.lab.training.trainer import TrainingCallbacks, TrainingWorkspace
    from domainadaptor.lab.training.trainer import train as run

    opened = open_dataset(dataset, root, **parse_data_options(dataset, data_option))
    if differs := differs_from_published(dataset, opened):
        err.print(f"note: {differs}", markup=False, highlight=False, soft_wrap=True)
    base = output or cache_folder()
    recipe = make_recipe(
        opened,
        base / "runs",
        network=network,
        weights=weights,
        size=size,
        option=parse_options(find_algorithm(algorithm), split_pairs(option, example="beta=0.5"), algorithm),
        task=task or (),
        algorithm=algorithm,
        select=select,
        select_option=parse_options(
            find_selection(select), split_pairs(select_option, "--select-option", "ratio=0.2"), select
        ),
        norm=norm,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        head_lr=head_lr,
        weight_decay=weight_decay,
        schedule=schedule,
        warmup=warmup,
        head_bias=head_bias,
        precision=precision,
        seed=seed,
    )
    records = []
    try:
        with torchrun_group(find_device(device)) as own:
            images = cache_folder() / "images" if cache else None
            place = TrainingWorkspace(own, root, base / "runs", images, find_start_weights(weights, base / "runs"))
            for sources, targets in _splits(opened, source or [], target or []):
                without = f"without {', '.join(targets)}" if targets else f"on {', '.join(sources)}"
                with training_bar(without, quiet=not is_main_process()) as bar:
                    watcher = TrainingCallbacks(bar.moment, bar.preparing)
                    record = run(replace(recipe, sources=sources), opened, targets, place, watcher, _command())
                records.append(record)
                if is_main_process() and not as_json:
                    _show(record)
            if not is_main_process():
                return
    except KeyboardInterrupt:
        err.print("interrupted: the same command goes on after the last finished epoch", highlight=False)
        raise typer.Exit(Exit.INTERRUPTED) from None
    if as_json:
        print_json(records)
    else:
        _show_all(records)
    if any(record["unreadable"] for record in records):
        raise typer.Exit(Exit.SOME_SKIPPED)


def _splits(
    dataset: "DomainDataset", sources: list[str], targets: list[str]
) -> list[tuple[tuple[str, ...], list[str]]]:
    """Source domains and target domains of each run."""
    for name in [*sources, *targets]:
        dataset.domain(name)
    both = sorted(set(sources) & set(targets))
    if both:
        raise BadOption(f"{both[0]!r} is both --source and --target; a target is never trained on")
    if sources:
        return [(tuple(sources), targets or [name for name in dataset.domains if name not in sources])]
    if len(dataset.domains) < 2:
        raise BadOption(
            f"{dataset.name} has one domain only; say --source {next(iter(dataset.domains))} to train on it"
        )
    return [(tuple(dataset.others(name)), [name]) for name in targets or dataset.domains]


def _command() -> str:
    """What was typed, without paths of this machine."""
    words = ["domainadaptor", *sys.argv[1:]]
    for flag in ("--root", "--output"):
        while flag in words:
            at = words.index(flag)
            del words[at : at + 2]
        words = [word for word in words if not word.startswith(f"{flag}=")]
    return shlex.join(words)


def _show(record: dict[str, Any]) -> None:
    accuracies = ", ".join(f"{name} {value:.1f} %" for name, value in record["target_accuracy"].items())
    targets = f", target {accuracies}" if accuracies else ""
    text = (
        f"source validation {record['source_validation']['accuracy']:.1f} %{targets}; {record['seconds'] / 60:.1f} min"
    )
    _say(f"{text}; {record['chosen']}")
    _say(f"  {record['checkpoint']}")
    show_notes([record["note"]] if record["note"] else [])
    if record["skipped"]:
        err.print(f"note: {len(record['skipped'])} files were skipped; the record lists them", highlight=False)


def _show_all(records: list[dict[str, Any]]) -> None:
    table = Table("left out", "source validation %", "target %", "minutes")
    for record in records:
        for name, value in record["target_accuracy"].items():
            validation = f"{record['source_validation']['accuracy']:.1f}"
            table.add_row(Text(name), validation, f"{value:.1f}", f"{record['seconds'] / 60:.1f}")
    if table.row_count:
        out.print(table)


def _say(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)

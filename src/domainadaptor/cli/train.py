"""`domainadaptor train`: train networks on source domains, one per held-out domain."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.table import Table
from rich.text import Text

from domainadaptor.cli.help import DATA, NETWORK, RUN, TRAINING
from domainadaptor.cli.options import DataOptions, parse_data_options, split_pairs
from domainadaptor.cli.terminal import (
    Cache,
    Dataset,
    Device,
    Exit,
    Json,
    Root,
    Seed,
    Size,
    err,
    find_device,
    out,
    print_json,
    print_text,
    show_notes,
    training_bar,
)
from domainadaptor.errors import BadOption
from domainadaptor.options import parse_options

if TYPE_CHECKING:  # they take seconds to import
    from domainadaptor.lab.data.domains import DomainDataset
    from domainadaptor.lab.training.recipe import TrainingRecipe
    from domainadaptor.lab.training.trainer import TrainedNetwork, TrainingWorkspace


def train(
    dataset: Dataset,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DOMAIN", rich_help_panel=DATA, help="The held-out domain; may be repeated. Default: each in turn."
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DOMAIN", rich_help_panel=DATA, help="Train once, on these domains only; the others are targets."
        ),
    ] = None,
    root: Root = None,
    data_option: DataOptions = None,
    network: Annotated[
        str,
        typer.Option(
            metavar="NAME", rich_help_panel=NETWORK, help="A torchvision, timm or CIFAR network, such as resnet18."
        ),
    ] = "resnet18",
    weights: Annotated[
        str,
        typer.Option(
            metavar="WEIGHTS",
            rich_help_panel=NETWORK,
            help="What to start from: `pretrained` for published weights on this machine, `none` for random ones, a "
            "file, or the name of a run.",
        ),
    ] = "pretrained",
    size: Size = None,
    norm: Annotated[
        str, typer.Option(metavar="KIND", rich_help_panel=NETWORK, help="Norm layers: batch, or iabn (for NOTE).")
    ] = "batch",
    head_bias: Annotated[
        bool, typer.Option(rich_help_panel=NETWORK, help="Give the head a bias; the paper's has none.")
    ] = False,
    algorithm: Annotated[
        str,
        typer.Option(
            metavar="NAME", rich_help_panel=TRAINING, help="erm, mldg, fsdcl, mvrml, arm …: see `algorithms`."
        ),
    ] = "erm",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", rich_help_panel=TRAINING, help="An option of the algorithm; may be repeated."
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK",
            rich_help_panel=TRAINING,
            help="A self-supervised task trained with ERM: rotation, jigsaw; may be repeated.",
        ),
    ] = None,
    select: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=TRAINING, help="Weights to keep: best, last or swad.")
    ] = "best",
    select_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", rich_help_panel=TRAINING, help="An option of --select, such as ratio=0.2 of swad."
        ),
    ] = None,
    epochs: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=TRAINING,
            help="An epoch has as many images as the source domains, the same number from each.",
        ),
    ] = 30,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", rich_help_panel=TRAINING, help="Images per step, over all domains.")
    ] = 128,
    lr: Annotated[
        float, typer.Option(metavar="RATE", rich_help_panel=TRAINING, help="Learning rate of the backbone.")
    ] = 1e-3,
    head_lr: Annotated[
        float,
        typer.Option(
            metavar="FACTOR", rich_help_panel=TRAINING, help="Learning rate of the head, as a factor of --lr."
        ),
    ] = 10.0,
    weight_decay: Annotated[
        float, typer.Option(metavar="X", rich_help_panel=TRAINING, help="Weight decay of all parameters.")
    ] = 5e-4,
    schedule: Annotated[
        str,
        typer.Option(
            metavar="NAME", rich_help_panel=TRAINING, help="step (a tenth of --lr after 80 % of the epochs) or cosine."
        ),
    ] = "step",
    warmup: Annotated[
        float, typer.Option(metavar="EPOCHS", rich_help_panel=TRAINING, help="Epochs of linear warm-up.")
    ] = 0.0,
    precision: Annotated[
        str, typer.Option(metavar="TYPE", rich_help_panel=TRAINING, help="float32, or bfloat16 for mixed precision.")
    ] = "float32",
    seed: Seed = 0,
    device: Device = "auto",
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            rich_help_panel=RUN,
            help="Folder of the runs: reused if complete, resumed if partial, started otherwise. Default: your cache.",
        ),
    ] = None,
    cache: Cache = True,
    as_json: Json = False,
) -> None:
    """Train a network, holding out each domain in turn.

    The same command reuses complete runs and resumes interrupted ones.
    """
    import torch

    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.data.registry import differs_from_published, open_dataset
    from domainadaptor.lab.training.distributed import is_main_process, torchrun_group
    from domainadaptor.lab.training.recipe import find_algorithm, find_start_weights, make_recipe
    from domainadaptor.lab.training.selection import find_selection
    from domainadaptor.lab.training.trainer import TrainingWorkspace

    texts = split_pairs(option, example="beta=0.5")
    select_texts = split_pairs(select_option, "--select-option", "ratio=0.2")
    opened = open_dataset(dataset, root, **parse_data_options(dataset, data_option))
    show_notes(filter(None, [differs_from_published(dataset, opened)]))
    runs, images = (output or cache_folder()) / "runs", cache_folder() / "images" if cache else None
    recipe = make_recipe(
        opened,
        runs,
        network=network,
        weights=weights,
        size=size,
        option=parse_options(find_algorithm(algorithm, allow_import=True), texts, algorithm),
        task=task or (),
        algorithm=algorithm,
        select=select,
        select_option=parse_options(find_selection(select), select_texts, select),
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
    torch.backends.cudnn.deterministic = True  # the same command gives the same weights, on a GPU too
    try:
        with torchrun_group(find_device(device)) as own:
            space = TrainingWorkspace(own, root, runs, images, find_start_weights(weights, runs))
            trained = _train(recipe, opened, space, _splits(opened, source or [], target or []), quiet=as_json)
            shows = is_main_process()  # known inside the group only
    except KeyboardInterrupt:
        _exit_interrupted()
    if shows:
        _show_all(trained, as_json)


def _train(
    recipe: "TrainingRecipe",
    dataset: "DomainDataset",
    space: "TrainingWorkspace",
    splits: list[tuple[tuple[str, ...], list[str]]],
    *,
    quiet: bool,
) -> "list[TrainedNetwork]":
    """Train a network per split, with a progress bar and, unless quiet, a line for each."""
    from domainadaptor.lab.training.distributed import is_main_process
    from domainadaptor.lab.training.trainer import Trainer, TrainingCallbacks

    trained = []
    for sources, targets in splits:
        title = f"without {', '.join(targets)}" if targets else f"on {', '.join(sources)}"
        with training_bar(title, quiet=not is_main_process()) as bar:
            callbacks = TrainingCallbacks(bar.moment, bar.preparing)
            trainer = Trainer(recipe.replace(sources=sources), dataset, space, callbacks, _command())
            trained.append(trainer.train(targets))
        if is_main_process() and not quiet:
            _show(trained[-1])
    return trained


def _splits(
    dataset: "DomainDataset", sources: list[str], targets: list[str]
) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return the source and target domains of each run."""
    for name in [*sources, *targets]:
        dataset.domain(name)
    if both := sorted(set(sources) & set(targets)):
        raise BadOption(f"{both[0]!r} is both --source and --target; a target domain is never trained on")
    if sources:
        return [(tuple(sources), targets or [name for name in dataset.domains if name not in sources])]
    if len(dataset.domains) < 2:
        only = next(iter(dataset.domains))
        raise BadOption(f"{dataset.name} has a single domain; pass --source {only} to train on it")
    return [(tuple(dataset.others(name)), [name]) for name in targets or dataset.domains]


def _command() -> str:
    """Return the command line without paths of this machine."""
    words = ["domainadaptor", *sys.argv[1:]]
    for flag in ("--root", "--output"):
        while flag in words:
            at = words.index(flag)
            del words[at : at + 2]
        words = [word for word in words if not word.startswith(f"{flag}=")]
    return shlex.join(words)


def _show(trained: "TrainedNetwork") -> None:
    record = trained.record
    accuracies = ", ".join(f"{name} {value:.1f} %" for name, value in record.target_accuracy.items())
    targets = f", target {accuracies}" if accuracies else ""
    validation = f"source validation {record.source_validation.accuracy:.1f} %"
    print_text(f"{validation}{targets}; {record.seconds / 60:.1f} min; {record.chosen}")
    print_text(f"  {trained.checkpoint}")
    show_notes([record.note] if record.note else [])
    if record.skipped:
        show_notes([f"{len(record.skipped)} files were skipped; the record lists them"])


def _exit_interrupted() -> NoReturn:
    print_text("interrupted: run the same command again to resume after the last complete epoch", err)
    raise typer.Exit(Exit.INTERRUPTED) from None


def _show_all(trained: "list[TrainedNetwork]", as_json: bool) -> None:
    if as_json:
        print_json([one.to_dict() for one in trained])
    else:
        _show_table(trained)
    if any(one.record.unreadable for one in trained):
        raise typer.Exit(Exit.SOME_SKIPPED)


def _show_table(trained: "list[TrainedNetwork]") -> None:
    table = Table("held out", "source validation %", "target %", "minutes")
    for record, _ in trained:
        for name, value in record.target_accuracy.items():
            validation = f"{record.source_validation.accuracy:.1f}"
            table.add_row(Text(name), validation, f"{value:.1f}", f"{record.seconds / 60:.1f}")
    if table.row_count:
        out.print(table)

"""`domainadaptor train`: train networks on source domains, one per held-out domain."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import DATA, NETWORK, RUN, TRAINING, option
from domainadaptor.cli.options import DataOptions, parse_data_options, split_pairs
from domainadaptor.errors import BadOption
from domainadaptor.options import parse_options

if TYPE_CHECKING:  # they take seconds to import
    from domainadaptor.lab.cluster.start import Workers
    from domainadaptor.lab.data.domains import DomainDataset
    from domainadaptor.lab.training.recipe import TrainingRecipe
    from domainadaptor.lab.training.trainer import TrainedNetwork, TrainingWorkspace

EXAMPLES = r"""
domainadaptor train digits --network resnet20 --weights none --epochs 3
domainadaptor train folders --root my-images --target night
"""


Texts = list[str] | None
Splits = list[tuple[tuple[str, ...], list[str]]]  # source and target domains of each run


def train(
    context: typer.Context,
    dataset: terminal.Dataset,
    target: Annotated[Texts, option("DOMAIN", "The held-out domain; repeatable. Default: each in turn.", DATA)] = None,
    source: Annotated[
        Texts, option("DOMAIN", "Train once, on these domains only; the others are targets.", DATA)
    ] = None,
    root: terminal.Root = None,
    data_option: DataOptions = None,
    network: Annotated[
        str, option("NAME", "A torchvision, timm or CIFAR network, such as resnet18.", NETWORK)
    ] = "resnet18",
    weights: Annotated[
        str, option("WEIGHTS", "To start from: pretrained (published), none (random), a file, or a run.", NETWORK)
    ] = "pretrained",
    size: terminal.Size = None,
    norm: Annotated[str, option("KIND", "Norm layers: batch, or iabn (for NOTE).", NETWORK)] = "batch",
    head_bias: Annotated[bool, option(None, "Give the head a bias; the paper's has none.", NETWORK)] = False,
    algorithm: Annotated[str, option("NAME", "erm, mldg, fsdcl, mvrml, arm …: see `algorithms`.", TRAINING)] = "erm",
    algorithm_option: Annotated[
        Texts, option("NAME=VALUE", "An option of the algorithm; repeatable.", TRAINING, "--option")
    ] = None,
    task: Annotated[Texts, option("TASK", "A task trained with ERM: rotation, jigsaw; repeatable.", TRAINING)] = None,
    select: Annotated[str, option("NAME", "Weights to keep: best, last or swad.", TRAINING)] = "best",
    select_option: Annotated[
        Texts, option("NAME=VALUE", "An option of --select, such as ratio=0.2 of swad.", TRAINING)
    ] = None,
    epochs: Annotated[
        int, option("N", "Epochs, each with as many images as all source domains.", TRAINING, min=1)
    ] = 30,
    batch_size: Annotated[int, option("N", "Images per step, over all domains.", TRAINING, min=1)] = 128,
    lr: Annotated[float, option("RATE", "Learning rate of the backbone.", TRAINING)] = 1e-3,
    head_lr: Annotated[float, option("FACTOR", "Learning rate of the head, as a factor of --lr.", TRAINING)] = 10.0,
    weight_decay: Annotated[float, option("X", "Weight decay of all parameters.", TRAINING)] = 5e-4,
    schedule: Annotated[
        str, option("NAME", "step (a tenth of --lr after 80 % of the epochs) or cosine.", TRAINING)
    ] = "step",
    warmup: Annotated[float, option("EPOCHS", "Epochs of linear warm-up.", TRAINING)] = 0.0,
    precision: Annotated[str, option("TYPE", "float32, or bfloat16 for mixed precision.", TRAINING)] = "float32",
    seed: terminal.Seed = 0,
    device: terminal.Device = "auto",
    output: Annotated[Path | None, option("FOLDER", "Folder of the runs. Default: your cache.", RUN)] = None,
    cache: terminal.Cache = True,
    engine: options.Engine = "process",
    address: options.Address = None,
    workers: options.WorkerCount = None,
    threads: options.Threads = None,
    gpus: options.Gpus = None,
    as_json: terminal.Json = False,
) -> None:
    """Train a network, holding out each domain in turn.

    The same command reuses complete runs and resumes interrupted ones.
    """
    import torch

    from domainadaptor.lab.data.image_cache import cache_folder
    from domainadaptor.lab.data.registry import differs_from_published, open_dataset
    from domainadaptor.lab.training.distributed import is_main_process, torchrun_group
    from domainadaptor.lab.training.recipe import TrainingRecipe, find_algorithm, find_start_weights, make_recipe
    from domainadaptor.lab.training.selection import find_selection
    from domainadaptor.lab.training.trainer import TrainingWorkspace

    cluster = options.find_workers(engine, address, workers, threads, gpus)
    texts = split_pairs(algorithm_option, example="beta=0.5")
    select_texts = split_pairs(select_option, "--select-option", "ratio=0.2")
    opened = open_dataset(dataset, root, **parse_data_options(dataset, data_option))
    terminal.show_notes(filter(None, [differs_from_published(dataset, opened)]))
    runs, images = (output or cache_folder()) / "runs", cache_folder() / "images" if cache else None
    settings = {name: context.params[name] for name in TrainingRecipe.model_fields if name in context.params}
    settings["dataset"], settings["task"] = opened, task or ()
    settings["option"] = parse_options(find_algorithm(algorithm, allow_import=True), texts, algorithm)
    settings["select_option"] = parse_options(find_selection(select), select_texts, select)
    recipe = make_recipe(runs=runs, **settings)
    torch.backends.cudnn.deterministic = True  # the same command gives the same weights, on a GPU too
    try:
        with torchrun_group(terminal.find_device(device)) as own:
            space = TrainingWorkspace(own, root, runs, images, find_start_weights(weights, runs))
            splits = _splits(opened, source or [], target or [])
            if cluster is None:
                trained = _train(recipe, opened, space, splits, quiet=as_json)
            else:
                trained = _train_on_cluster(recipe, opened, space, splits, cluster, quiet=as_json)
            shows = is_main_process()  # known inside the group only
    except KeyboardInterrupt:
        hint = "run the same command again to resume after the last complete epoch"
        terminal.print_text(f"interrupted: {hint}", terminal.err)
        raise typer.Exit(terminal.Exit.INTERRUPTED) from None
    if shows and as_json:
        terminal.print_json([one.to_dict() for one in trained])
    elif shows:
        _show_table(trained)
    if shows and any(one.record.unreadable for one in trained):
        raise typer.Exit(terminal.Exit.SOME_SKIPPED)


def _train(
    recipe: "TrainingRecipe", dataset: "DomainDataset", space: "TrainingWorkspace", splits: Splits, *, quiet: bool
) -> "list[TrainedNetwork]":
    """Train a network per split, with a progress bar and, unless quiet, a line for each."""
    from domainadaptor.lab.training.distributed import is_main_process
    from domainadaptor.lab.training.trainer import Trainer

    trained = []
    for sources, targets in splits:
        title = f"without {', '.join(targets)}" if targets else f"on {', '.join(sources)}"
        with terminal.progress_bar(None, title, lines=True, quiet=not is_main_process()) as bar:
            own = recipe.replace(sources=sources)
            trained.append(Trainer(own, dataset, space, bar.moment, bar.show, _command()).train(targets))
        if is_main_process() and not quiet:
            _show(trained[-1])
    return trained


def _train_on_cluster(
    recipe: "TrainingRecipe",
    dataset: "DomainDataset",
    space: "TrainingWorkspace",
    splits: Splits,
    workers: "Workers",
    *,
    quiet: bool,
) -> "list[TrainedNetwork]":
    """Train the networks of all splits side by side; show each when it is finished."""
    from domainadaptor.lab.cluster.tasks import train_on_cluster
    from domainadaptor.lab.training.trainer import Trainer

    trainers, trained = {}, {}
    for sources, targets in splits:
        title = f"without {', '.join(targets)}" if targets else f"on {', '.join(sources)}"
        trainers[title] = Trainer(recipe.replace(sources=sources), dataset, space, command=_command()), targets
    with terminal.progress_bar(len(splits), lines=True) as bar:
        for title, found in train_on_cluster(trainers, workers):
            trained[title] = found
            bar.step(title)
            if not quiet:
                _show(found)
    return [trained[title] for title in trainers]


def _splits(dataset: "DomainDataset", sources: list[str], targets: list[str]) -> Splits:
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
        words = [
            word
            for at, word in enumerate(words)
            if flag not in (word, words[at - 1]) and not word.startswith(f"{flag}=")
        ]
    return shlex.join(words)


def _show(trained: "TrainedNetwork") -> None:
    record = trained.record
    accuracies = ", ".join(f"{name} {value:.1f} %" for name, value in record.target_accuracy.items())
    targets = f", target {accuracies}" if accuracies else ""
    validation = f"source validation {record.source_validation.accuracy:.1f} %"
    terminal.print_text(f"{validation}{targets}; {record.seconds / 60:.1f} min; {record.chosen}")
    terminal.print_text(f"  {trained.checkpoint}")
    terminal.show_notes([record.note] if record.note else [])
    if record.skipped:
        terminal.show_notes([f"skipped {terminal.count(len(record.skipped), 'file')}; the record lists them"])


def _show_table(trained: "list[TrainedNetwork]") -> None:
    table = Table("held out", "source validation %", "target %", "minutes")
    for record, _ in trained:
        for name, value in record.target_accuracy.items():
            validation = f"{record.source_validation.accuracy:.1f}"
            table.add_row(Text(name), validation, f"{value:.1f}", f"{record.seconds / 60:.1f}")
    if table.row_count:
        terminal.out.print(table)

"""`domainadaptor data`: list data sets; get, describe or check one."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import DATA, PlainCommand, option

if TYPE_CHECKING:  # it takes seconds to import
    from domainadaptor.lab.data.domains import DomainDataset

app = typer.Typer(help="List data sets; get, describe or check one.", no_args_is_help=True, rich_markup_mode=None)

_MOST_DOMAINS = 6  # columns of the table of classes; with more domains it has their sum only
_SHOWN = 10  # skipped files that are listed
Seed = Annotated[int | None, option("N", "Seed of an unpublished split.", DATA, min=0)]


@app.command("list", cls=PlainCommand, epilog="domainadaptor data list")
def list_(as_json: terminal.Json = False) -> None:
    """List the data sets and their options."""
    from domainadaptor.lab.data.registry import data_options, datasets

    known = datasets()
    if as_json:
        terminal.print_json({name: {"is": text, "options": data_options(name)} for name, text in known.items()})
        return
    table = Table("data set", "description", "options")
    for name, text in known.items():
        table.add_row(name, text, "\n".join(f"{option}={value}" for option, value in data_options(name).items()))
    terminal.out.print(table)
    terminal.print_text("Details: domainadaptor data describe NAME --root FOLDER")


@app.command(cls=PlainCommand, epilog="domainadaptor data describe digits")
def describe(
    dataset: terminal.Dataset,
    root: terminal.Root = None,
    data_option: options.DataOptions = None,
    seed: Seed = None,
    as_json: terminal.Json = False,
) -> None:
    """Show domains, classes, numbers of images, the split, and skipped files."""
    from domainadaptor.lab.data.registry import differs_from_published, open_dataset

    chosen = options.parse_data_options(dataset, data_option)
    opened = open_dataset(dataset, root, **({} if seed is None else {"seed": seed}) | chosen)
    differs = differs_from_published(dataset, opened)
    if as_json:
        more = {"classes": opened.classes, "differs_from_published": differs}
        terminal.print_json(opened.manifest() | more)
        return
    _show_size(opened)
    terminal.out.print(_class_table(opened))
    terminal.out.print(_split_table(opened))
    terminal.print_text(f"Split: {opened.splits}.")
    terminal.show_notes([differs] if differs else [])
    _show_files("skipped", opened.skipped)


@app.command(cls=PlainCommand, epilog="domainadaptor data get pacs")
def get(dataset: terminal.Dataset, root: terminal.Root = None) -> None:
    """Show where a data set is published, how to unpack it, and how many images to expect. Nothing is downloaded."""
    from domainadaptor.lab.data.registry import published_images, source_of

    counts = published_images(dataset)
    folder = "the folder that DOMAINADAPTOR_DATA names" if root is None else repr(str(root))
    terminal.print_text(f"{dataset}: {source_of(dataset)}")
    terminal.print_text(f"All paths are below {folder}.")
    domains = ", ".join(f"{domain} {images:,}" for domain, images in counts.items())
    terminal.print_text(f"Expected: {sum(counts.values()):,} images: {domains}.")
    terminal.print_text(f"Then: domainadaptor data check {dataset} --root {shlex.quote(str(root or 'FOLDER'))}")


@app.command(cls=PlainCommand, epilog="domainadaptor data check pacs --root data")
def check(
    dataset: terminal.Dataset,
    root: terminal.Root = None,
    data_option: options.DataOptions = None,
    as_json: terminal.Json = False,
) -> None:
    """Decode every image of a data set, and compare the numbers of images with the published ones.

    Exit code 3: images cannot be read, or numbers differ.
    """
    from domainadaptor.lab.data.integrity import unreadable_images
    from domainadaptor.lab.data.registry import differs_from_published, open_dataset

    opened = open_dataset(dataset, root, **options.parse_data_options(dataset, data_option))
    with terminal.progress_bar(len(opened), "decoding images") as bar:
        unreadable = unreadable_images(opened, lambda done: bar.at(done, len(opened)))
    differs = differs_from_published(dataset, opened)
    if as_json:
        terminal.print_json(
            {
                "images": len(opened),
                "unreadable": unreadable,
                "differs_from_published": differs,
                "skipped": dict(opened.skipped),
            }
        )
    else:
        _show_size(opened)
        terminal.show_notes([differs] if differs else [])
        _show_files("skipped", opened.skipped)
        _show_files("cannot be read", unreadable)
        if not unreadable:
            terminal.print_text("All images can be decoded.")
    if unreadable or differs:
        raise typer.Exit(terminal.Exit.SOME_SKIPPED)


def _show_size(dataset: "DomainDataset") -> None:
    domains = terminal.count(len(dataset.domains), "domain")
    classes = terminal.count(len(dataset.classes), "class", "classes")
    terminal.print_text(f"{dataset.name}: {domains}, {classes}, {terminal.count(len(dataset), 'image')}")


def _class_table(dataset: "DomainDataset") -> Table:
    """Return the images of each class by domain; with many domains, in all of them together."""
    counts = dataset.counts()
    columns = counts if len(counts) <= _MOST_DOMAINS else {}
    columns |= {"all": {kind: sum(found[kind] for found in counts.values()) for kind in dataset.classes}}
    table = Table(Column("class", "all", overflow="fold"), show_footer=True)
    for name, found in columns.items():
        table.add_column(Text(name), f"{sum(found.values()):,}", justify="right", overflow="fold")
    for kind in dataset.classes:
        numbers = [found[kind] for found in columns.values()]
        table.add_row(Text(kind), *(Text(f"{number:,}", style="" if number else "red") for number in numbers))
    return table


def _split_table(dataset: "DomainDataset") -> Table:
    names = ("training", "validation", "test only", "tested if held out")
    table = Table(Column("domain", overflow="fold"), title="Images per split")
    for name in names:
        table.add_column(name, justify="right")
    for name, domain in dataset.domains.items():
        counts = domain.split_counts()
        numbers = [*(counts.get(split, 0) for split in ("train", "val", "test")), len(domain.select("test"))]
        table.add_row(Text(name), *(f"{number:,}" for number in numbers))
    return table


def _show_files(what: str, files: Mapping[str, str]) -> None:
    if not files:
        return
    terminal.print_text(f"{terminal.count(len(files), 'file')} {what}:", terminal.err)
    for file, why in list(files.items())[:_SHOWN]:
        terminal.print_text(f"  {file}: {why}", terminal.err)
    if len(files) > _SHOWN:
        terminal.print_text(f"  and {len(files) - _SHOWN:,} more; --json lists them all", terminal.err)

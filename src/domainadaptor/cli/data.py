"""`domainadaptor data`: list data sets, and describe one."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import DATA, RUN, PlainCommand, option
from domainadaptor.errors import BadOption

if TYPE_CHECKING:  # it takes seconds to import
    from domainadaptor.lab.data.domains import DomainDataset

app = typer.Typer(help="List data sets, or describe one.", no_args_is_help=True, rich_markup_mode=None)

_WIDEST = 24  # characters of a name per line
_SHOWN = 10  # skipped files that are listed
_SHEET = "PNG file for an image of each class and domain."
_DECODE = "Decode every image to find corrupt ones. Default: check headers only."


@app.command("list", cls=PlainCommand)
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


@app.command(cls=PlainCommand)
def describe(
    dataset: terminal.Dataset,
    root: terminal.Root = None,
    data_option: options.DataOptions = None,
    output: Annotated[Path | None, option("FILE", _SHEET, RUN)] = None,
    decode: Annotated[bool, option(None, _DECODE, None, "--decode")] = False,
    seed: Annotated[int | None, option("N", "Seed of an unpublished split.", DATA, min=0)] = None,
    as_json: terminal.Json = False,
) -> None:
    """Show domains, classes, numbers of images, the split, and skipped files."""
    from domainadaptor.lab.data.contact_sheet import contact_sheet
    from domainadaptor.lab.data.registry import differs_from_published, open_dataset
    from domainadaptor.lab.files import make_folder, replacing

    if output is not None and output.suffix.lower() != ".png":
        raise BadOption(f"--output {str(output)!r}: expected the name of a PNG file, such as sheet.png")
    chosen = options.parse_data_options(dataset, data_option)
    opened = open_dataset(dataset, root, **({} if seed is None else {"seed": seed}) | chosen)
    unreadable = _unreadable(opened, decode)
    differs = differs_from_published(dataset, opened)
    sheet = contact_sheet(opened) if output else None
    if sheet and output:
        make_folder(output.parent)
        with replacing(output) as path:
            sheet.image.save(path, format="PNG")
    if as_json:
        more = {"unreadable": unreadable, "differs_from_published": differs, "sheet": str(output) if output else None}
        terminal.print_json({**opened.manifest(), "classes": opened.classes, **more})
    else:
        _show(opened, unreadable, differs, decode)
        if sheet and output:
            terminal.print_text(f"Contact sheet: {output}")
            terminal.print_text(f"Rows: {', '.join(sheet.domains)}. Columns: {', '.join(sheet.classes)}.")
    if unreadable:
        raise typer.Exit(terminal.Exit.SOME_SKIPPED)


def _unreadable(dataset: "DomainDataset", decode: bool) -> dict[str, str]:
    """Return the images that cannot be read, and why."""
    from domainadaptor.lab.data.integrity import unreadable_images

    with terminal.progress_bar(len(dataset), "checking images") as bar:
        return unreadable_images(dataset, decode, lambda done: bar.at(done, len(dataset)))


def _show(dataset: "DomainDataset", unreadable: Mapping[str, str], differs: str, decoded: bool) -> None:
    domains, classes = (
        terminal.count(len(dataset.domains), "domain"),
        terminal.count(len(dataset.classes), "class", "classes"),
    )
    terminal.print_text(f"{dataset.name}: {domains}, {classes}, {terminal.count(len(dataset), 'image')}")
    for table in _class_tables(dataset):
        terminal.out.print(table)
    terminal.out.print(_split_table(dataset))
    terminal.print_text(f"Split: {dataset.splits}.")
    terminal.show_notes([differs] if differs else [])
    _show_files("skipped", dataset.skipped)
    _show_files("cannot be read", unreadable)
    if not unreadable:
        terminal.print_text(
            "All images can be decoded." if decoded else "All image headers are valid; --decode checks more."
        )


def _class_tables(dataset: "DomainDataset") -> Iterator[Table]:
    """Yield tables of images per class and domain, each with as many domains as fit the terminal."""
    counts = dataset.counts()
    columns = {name: list(found.values()) for name, found in counts.items()}
    if len(columns) > 1 and len(set(map(tuple, columns.values()))) == 1:
        columns = {"in each domain": next(iter(columns.values()))}
    columns["all"] = [sum(found[kind] for found in counts.values()) for kind in dataset.classes]
    names = list(columns)
    fitting = max(1, (terminal.out.width - _WIDEST - 4) // (min(_WIDEST, max(7, *map(len, names))) + 3))
    for start in range(0, len(names), fitting):
        table = Table(show_footer=True)
        table.add_column("class", "all", overflow="fold", max_width=_WIDEST)
        chosen = {name: columns[name] for name in names[start : start + fitting]}
        for name, numbers in chosen.items():
            table.add_column(Text(name), f"{sum(numbers):,}", justify="right", overflow="fold", max_width=_WIDEST)
        for kind, *numbers in zip(dataset.classes, *chosen.values(), strict=True):
            table.add_row(Text(kind), *(Text(f"{number:,}", style="" if number else "red") for number in numbers))
        yield table


def _split_table(dataset: "DomainDataset") -> Table:
    table = Table(title="Images per split")
    table.add_column("domain", overflow="fold", max_width=_WIDEST)
    for column in ("training", "validation", "test only", "tested if held out"):
        table.add_column(column, justify="right")
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

"""`domainadaptor data`: which data sets there are, what is in one, and how fast it loads."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from domainadaptor.cli.help import PlainCommand
from domainadaptor.cli.options import DataOptions, parse_data_options
from domainadaptor.cli.terminal import Exit, Json, Root, err, out, print_json, progress_bar
from domainadaptor.errors import BadOption

if TYPE_CHECKING:  # it takes seconds to import
    from domainadaptor.lab.data.domains import DomainDataset

app = typer.Typer(
    name="data", help="List data sets, look at one, or time its loading.", no_args_is_help=True, rich_markup_mode=None
)

_WIDEST = 24  # letters of a name in a line
_SHOWN = 10  # skipped files, until the rest is a number


@app.command("list", cls=PlainCommand)
def list_(as_json: Json = False) -> None:
    """List the data sets and their options."""
    from domainadaptor.lab.data.registry import data_options, datasets

    known = datasets()
    if as_json:
        print_json({name: {"is": text, "options": data_options(name)} for name, text in known.items()})
        return
    table = Table("data set", "what it is", "options")
    for name, text in known.items():
        table.add_row(name, text, "\n".join(f"{option}={value}" for option, value in data_options(name).items()))
    out.print(table)
    out.print("What is in one: domainadaptor data describe NAME --root FOLDER", highlight=False)


@app.command(cls=PlainCommand)
def describe(
    dataset: Annotated[str, typer.Argument(help="pacs, vlcs, office-home, digits, folders …: see `data list`.")],
    root: Root = None,
    data_option: DataOptions = None,
    output: Annotated[
        Path | None, typer.Option(help="A PNG file for a contact sheet: a few images of each class and domain.")
    ] = None,
    decode: Annotated[
        bool, typer.Option("--decode", help="Decode every image, to find damaged ones; only headers otherwise.")
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="The data set's option seed: of its split.")] = None,
    as_json: Json = False,
) -> None:
    """Show domains, classes, numbers of images, the split, and files that are skipped and why."""
    from domainadaptor.lab.data.contact_sheet import contact_sheet
    from domainadaptor.lab.data.registry import differs_from_published, open_dataset

    if output is not None and output.suffix.lower() != ".png":
        raise BadOption(f"--output {str(output)!r}: expected the name of a PNG file, as sheet.png")
    options = parse_data_options(dataset, data_option)
    opened = open_dataset(dataset, root, **({} if seed is None else {"seed": seed}) | options)
    unreadable = _look(opened, decode)
    differs = differs_from_published(dataset, opened)
    sheet = contact_sheet(opened) if output else None
    if sheet and output:
        unreadable |= sheet.unreadable
        sheet.save(output)
    if as_json:
        print_json(_as_json(opened, unreadable, differs, output))
    else:
        _show(opened, unreadable, differs, decode)
        if sheet and output:
            _say(f"Contact sheet with {sheet.shows}: {output}")
    if unreadable:
        raise typer.Exit(Exit.SOME_SKIPPED)


@app.command(cls=PlainCommand)
def speed(
    dataset: Annotated[str, typer.Argument(help="pacs, vlcs, office-home, digits, folders …: see `data list`.")],
    network: Annotated[str, typer.Option(help="Whose plain inference the loading is compared with.")] = "resnet18",
    size: Annotated[int | None, typer.Option(min=1, help="Side of the images; the network's own otherwise.")] = None,
    domain: Annotated[str | None, typer.Option(help="The domain that is loaded; the first otherwise.")] = None,
    root: Root = None,
    data_option: DataOptions = None,
    as_json: Json = False,
) -> None:
    """Measure how many images of a domain are loaded a second, and how many the network predicts."""
    from domainadaptor.lab.bench.loading import loading_rates
    from domainadaptor.lab.data.registry import open_dataset
    from domainadaptor.lab.networks.zoo import find_network

    side = size or find_network(network).preprocessing.size
    opened = open_dataset(dataset, root, **parse_data_options(dataset, data_option))
    name = domain or next(iter(opened.domains))
    rates = loading_rates(opened.domain(name), network, side)
    if as_json:
        print_json([asdict(rate) for rate in rates])
        return
    table = Table("", "images a second", "times plain", title=f"{opened.name}, {name}, at {side}x{side}")
    for rate in rates:
        table.add_row(rate.way, f"{rate.images_per_second:,.0f}", f"{rate.times_plain:.1f}")
    out.print(table)


def _look(dataset: "DomainDataset", decode: bool) -> dict[str, str]:
    """Images that cannot be read."""
    from domainadaptor.lab.data.integrity import unreadable_images

    total = sum(len(domain.examples) for domain in dataset.domains.values())
    found: dict[str, str] = {}
    with progress_bar(total) as bar:
        done = 0
        for name, domain in dataset.domains.items():

            def step(more: int) -> None:
                nonlocal done
                done += more
                bar.at(done, total)

            found |= {f"{name}/{file}": why for file, why in unreadable_images(domain, decode, step).items()}
    return found


def _as_json(
    dataset: "DomainDataset", unreadable: Mapping[str, str], differs: str, sheet: Path | None
) -> dict[str, Any]:
    counts = dataset.counts()
    return {
        "name": dataset.name,
        "classes": list(dataset.classes),
        "splits": dataset.splits,
        "domains": {
            name: {
                "images": len(domain.examples),
                **_parts(dataset, name),
                "tested": len(domain.select("test")),
                "classes": counts[name],
            }
            for name, domain in dataset.domains.items()
        },
        "skipped": dict(dataset.skipped),
        "unreadable": dict(unreadable),
        "differs_from_published": differs,
        "sheet": str(sheet) if sheet else None,
    }


def _parts(dataset: "DomainDataset", domain: str) -> dict[str, int]:
    counted = Counter(example.split for example in dataset.domains[domain].examples)
    return {"train": counted["train"], "val": counted["val"], "test": counted["test"]}


def _show(dataset: "DomainDataset", unreadable: Mapping[str, str], differs: str, decoded: bool) -> None:
    images = sum(len(domain.examples) for domain in dataset.domains.values())
    _say(f"{dataset.name}: {len(dataset.domains)} domains, {len(dataset.classes)} classes, {images:,} images")
    for table in _class_tables(dataset):
        out.print(table)
    out.print(_part_table(dataset))
    _say(f"Split: {dataset.splits}.")
    if differs:
        err.print(f"note: {differs}", markup=False, highlight=False, soft_wrap=True)
    _show_files("skipped", dataset.skipped)
    _show_files("cannot be read", unreadable)
    if not unreadable:
        what = (
            "All images can be decoded." if decoded else "The headers of all images are fine (--decode looks closer)."
        )
        _say(what)


def _class_tables(dataset: "DomainDataset") -> Iterator[Table]:
    """Images by class and domain, as many domains in a table as the terminal is wide enough for."""
    counts = dataset.counts()
    columns = {name: list(found.values()) for name, found in counts.items()}
    if len(columns) > 1 and len(set(map(tuple, columns.values()))) == 1:
        columns = {"in each domain": next(iter(columns.values()))}
    columns["all"] = [sum(found[kind] for found in counts.values()) for kind in dataset.classes]
    margin = min(_WIDEST, max(map(len, dataset.classes))) + 4
    for names in _fitting({name: min(_WIDEST, max(len(name), 7)) + 3 for name in columns}, out.width - margin):
        table = Table(show_footer=True)
        table.add_column("class", "all", overflow="fold", max_width=_WIDEST)
        for name in names:
            whole = f"{sum(columns[name]):,}"
            table.add_column(Text(name), whole, justify="right", overflow="fold", max_width=_WIDEST)
        for at, kind in enumerate(dataset.classes):
            numbers = [columns[name][at] for name in names]
            table.add_row(Text(kind), *(Text(f"{number:,}", style="" if number else "red") for number in numbers))
        yield table


def _fitting(widths: Mapping[str, int], width: int) -> Iterator[list[str]]:
    """Names in groups, each of which fits."""
    group: list[str] = []
    for name in widths:
        if group and sum(widths[other] for other in group) + widths[name] > width:
            yield group
            group = []
        group.append(name)
    yield group


def _part_table(dataset: "DomainDataset") -> Table:
    table = Table(title="What images are for")
    table.add_column("domain", overflow="fold", max_width=_WIDEST)
    for column in ("training", "validation", "testing only", "tested on if left out"):
        table.add_column(column, justify="right")
    for name, domain in dataset.domains.items():
        numbers = [*_parts(dataset, name).values(), len(domain.select("test"))]
        table.add_row(Text(name), *(f"{number:,}" for number in numbers))
    return table


def _show_files(what: str, files: Mapping[str, str]) -> None:
    if not files:
        return
    err.print(f"{len(files):,} file{'s' if len(files) > 1 else ''} {what}:", highlight=False, soft_wrap=True)
    for file, why in list(files.items())[:_SHOWN]:
        err.print(f"  {file}: {why}", markup=False, highlight=False, soft_wrap=True)
    if len(files) > _SHOWN:
        err.print(f"  and {len(files) - _SHOWN:,} more; --json lists them all", highlight=False, soft_wrap=True)


def _say(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)

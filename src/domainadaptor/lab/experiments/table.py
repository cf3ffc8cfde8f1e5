"""An experiment in memory: tables of rows and columns, and the cells behind each number."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import domainadaptor
from domainadaptor.lab.evaluation.protocols import protocol_options
from domainadaptor.lab.experiments.analyses import WITHOUT_IMAGES
from domainadaptor.lab.experiments.networks import Located, Networks
from domainadaptor.lab.experiments.run_spec import Cell

Locate = Callable[[str, str | None, int], Located]

SWEPT = ("batch_size", "images")  # what a sweep may vary besides options of methods and protocols


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    label: str
    method: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)  # of cells, other than the table's
    network: str = ""
    paper: str | Mapping[str, str] | None = None  # what the paper's numbers call it, or the one number that it is
    group: str = ""
    measure: str = ""


@dataclass(frozen=True)
class TableSpec:
    """One table: rows, columns, and what its cells share."""

    title: str
    dataset: str
    network: str
    domains: tuple[str, ...]
    rows: tuple[Row, ...]
    data_options: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # column -> domains of one stream
    sweep: tuple[str, tuple[Any, ...]] | None = None  # option -> a column for each value
    seeds: tuple[int, ...] = (0,)
    images: int | None = None
    batch_size: int = 64
    order: int = 0
    protocol: str = "leave-one-out"
    protocol_options: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    show: str = "accuracy"
    mean: bool = True
    corner: str = "method"
    measure: str = ""
    paper: Mapping[str, Any] | None = None

    def columns(self) -> list[str]:
        """Their headings."""
        if self.sweep:
            return [str(value) for value in self.sweep[1]]
        return list(self.groups or self.domains)

    def sample(self) -> str:
        """In words: how many images, seeds, and in which batches."""
        if all((row.measure or self.measure) in WITHOUT_IMAGES for row in self.rows):
            return f"no test images: read off the trained networks, {len(self.seeds)} of each target"
        swept = self.sweep[0] if self.sweep else ""
        images = "full test sets" if self.images is None else f"{self.images} seeded images a domain"
        parts = [
            "" if swept == "images" else images,
            f"{len(self.seeds)} seeds" if len(self.seeds) > 1 else "one seed",
            "" if swept == "batch_size" else f"batches of {self.batch_size}",
            "" if self.protocol == "leave-one-out" else self.protocol,
            *(f"{row.label} with {_listed(own)}" for row in self.rows if (own := self._of_its_own(row))),
        ]
        return ", ".join(part for part in parts if part)

    def _of_its_own(self, row: Row) -> dict[str, Any]:
        """Settings that a row has and the others have not."""
        return {name: value for name, value in row.settings.items() if value != getattr(self, name)}


def _listed(settings: Mapping[str, Any]) -> str:
    return " and ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())


@dataclass(frozen=True)
class Experiment:
    """A checked file."""

    name: str
    file: Path
    title: str
    about: str
    remarks: tuple[str, ...]
    tables: tuple[TableSpec, ...]
    networks: Networks


def cells(table: TableSpec, row: Row, column: str, seed: int, locate: Locate) -> list[Cell]:
    """The cells behind one number of one seed: one, or one for each domain where a sweep averages over them.

    Args:
        table: The table.
        row: Its row.
        column: The heading of its column.
        seed: Of network and method.
        locate: Finds the network of a name for a target and a seed.
    """
    settings: dict[str, Any] = {
        "protocol": table.protocol,
        "protocol_options": dict(table.protocol_options),
        "batch_size": table.batch_size,
        "images": table.images,
        **row.settings,
    }
    options = dict(row.options)
    if table.sweep:
        name, values = table.sweep
        value = values[table.columns().index(column)]
        if name in SWEPT:
            settings[name] = value
        elif name in protocol_options(settings["protocol"]):
            settings["protocol_options"] |= {name: value}
        elif name in domainadaptor.method_info(row.method).defaults and name not in options:
            options[name] = value  # other rows have the same number in every column
    if table.groups:
        streams = list(table.groups.values()) if table.sweep else [table.groups[column]]
    else:
        streams = [(domain,) for domain in (table.domains if table.sweep else (column,))]
    return [
        Cell(
            dataset=table.dataset,
            domains=stream,
            network=locate(row.network or table.network, stream[0] if len(stream) == 1 else None, seed),
            method=row.method,
            options=options,
            data_options=table.data_options,
            order=table.order,
            seed=seed,
            sources=table.sources,
            measure=row.measure or table.measure,
            **settings,
        )
        for stream in streams
    ]

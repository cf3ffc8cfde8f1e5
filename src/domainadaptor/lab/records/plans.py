"""Plans: which records make which cell of which table. And manifests of data sets."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from domainadaptor.lab.records.base import Count, RecordModel, StoredRecord

RESERVED_NAMES = ("index", "training")  # files of a report


class PlannedRun(RecordModel):
    """A run that a cell needs."""

    id: str = ""  # empty if unknown before the network is trained
    command: str = ""  # that makes it; in older plans only
    missing: str = ""  # why it could not run when the plan was made


class PaperNumbers(RecordModel):
    """Where the paper's numbers of a table are found."""

    table: str
    backbone: str = ""
    columns: dict[str, str] = {}  # our column -> the paper's, where they differ


class PaperNumber(RecordModel):
    """One number of the paper: a row and a column of its table."""

    method: str
    column: str


class PlannedRow(RecordModel):
    """One row of a table."""

    label: str
    group: str = ""
    paper: str | PaperNumber | None = None  # what the paper's data call it
    cells: dict[str, tuple[tuple[PlannedRun, ...], ...]]  # column -> seeds -> runs whose mean is the seed's value


class PlannedTable(RecordModel):
    """One table or figure."""

    title: str
    sample: str = ""  # how many images and seeds, in words
    show: str = "accuracy"  # the view that presents it
    corner: str = "method"
    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    mean: bool = False  # whether a last column has the mean
    paper: PaperNumbers | None = None
    rows: tuple[PlannedRow, ...]

    def runs(self) -> list[PlannedRun]:
        """Return the runs of all cells, each once; runs without an id are listed one by one."""
        wanted = [run for row in self.rows for seeds in row.cells.values() for seed in seeds for run in seed]
        known = {run.id: run for run in wanted if run.id}
        return [*known.values(), *(run for run in wanted if not run.id)]


def check_file_name(name: str) -> str:
    """Return the name; a ValueError if a report cannot give it to a file."""
    if not re.fullmatch(r"[\w-][\w.-]*", name) or name in RESERVED_NAMES:
        reserved = ", ".join(RESERVED_NAMES)
        raise ValueError(f"{name!r} cannot name a report: expected letters, digits and hyphens, and none of {reserved}")
    return name


class Plan(StoredRecord):
    """The layout of an experiment."""

    kind: Literal["plan"] = "plan"
    name: str
    title: str
    about: str = ""
    file: str = ""
    command: str = ""
    remarks: tuple[str, ...] = ()
    tables: tuple[PlannedTable, ...]

    _check_name = field_validator("name")(check_file_name)


class DomainManifest(RecordModel):
    """The images of one domain."""

    images: Count
    classes: dict[str, Count]
    parts: dict[str, Count]
    tested: str
    sha256: str


class Manifest(StoredRecord):
    """What a data set held when it was used."""

    id_field = "fingerprint"
    kind: Literal["manifest"] = "manifest"
    name: str
    fingerprint: str
    splits: str
    domains: dict[str, DomainManifest]
    skipped: dict[str, str] = {}

"""The tables of an experiment file: rows, columns, and the runs behind each number."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue, PrivateAttr, model_validator

from domainadaptor.catalog import list_methods, method_info, method_options
from domainadaptor.errors import BadOption
from domainadaptor.lab.evaluation.protocols import check_protocol, protocol_options
from domainadaptor.lab.experiments.analyses import find_measurement, needs_images
from domainadaptor.lab.experiments.file_model import FileModel, Names, Positive, Seed, Seeds, Values
from domainadaptor.lab.experiments.networks import LocatedNetwork
from domainadaptor.lab.experiments.run_spec import RunSpec
from domainadaptor.lab.records.base import Options
from domainadaptor.lab.records.plans import PaperNumber, PaperNumbers
from domainadaptor.options import coerce_options, defaults_of, suggestion

SWEPT = ("batch_size", "images")  # what a sweep may vary besides options of methods and protocols
PROTOCOL = "leave-one-out"
_OF_ROWS = ("images", "batch_size", "protocol", "protocol_options")  # settings that a row may replace
_OF_TABLES = ("dataset", "data_options", "order", "sources", *_OF_ROWS)
_FROM_RUN = ("source_images", "target_images", "task", "learned_loss")  # options taken from the network and the data
Locate = Callable[[str, str | None, int], LocatedNetwork]


class RowSpec(FileModel, extra="allow"):
    """One row of a table; other keys are options of its method or measurement."""

    __pydantic_extra__: dict[str, JsonValue]

    method: str = ""
    network: str = ""
    paper: str | PaperNumber | None = None  # what the paper's numbers call it, or the one number that it is
    group: str = ""
    images: Positive | None = None
    batch_size: Positive | None = None
    protocol: str | None = None
    protocol_options: Options | None = None
    measure: str = ""
    _label: str = PrivateAttr("")

    @model_validator(mode="after")
    def _is_known(self) -> "RowSpec":
        if not self.method and not self.measure:
            raise ValueError(f"'method' is missing; {suggestion('', list_methods())}")
        for name in self.options:
            if name in _FROM_RUN:
                raise BadOption(f"{name!r} cannot be set in a file: it is taken from the network and the data")
        self.typed(self.options)
        return self

    @property
    def label(self) -> str:
        """Its heading."""
        return self._label

    @property
    def options(self) -> dict[str, Any]:
        """Options of its method or measurement."""
        return dict(self.__pydantic_extra__)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of its runs that replace the table's."""
        return {name: value for name in _OF_ROWS if (value := getattr(self, name)) is not None}

    @property
    def defaults(self) -> Mapping[str, Any]:
        """All options of its method or measurement, with their defaults."""
        return defaults_of(find_measurement(self.measure)) if self.measure else method_info(self.method).defaults

    def typed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options in their declared types; only registered names are accepted: a file imports no code."""
        if self.measure:
            return coerce_options(find_measurement(self.measure), options, self.measure)
        return method_options(self.method, options)


class SweepSpec(FileModel):
    """An option with one column per value."""

    option: str
    values: Values


class TableSpec(FileModel):
    """One table: rows, columns, and what its runs share."""

    title: str
    dataset: str
    data_options: Options = {}
    network: str
    domains: Names = ()
    groups: dict[str, Names] = {}  # column -> domains of one stream
    sweep: SweepSpec | None = None
    seeds: Seeds = (0,)
    images: Positive | None = None
    batch_size: Positive = 64
    order: Seed = 0
    protocol: str = PROTOCOL
    protocol_options: Options = {}
    sources: Names = ()
    show: str = ""  # the view of the report; accuracy, or what is measured
    mean: bool = True
    corner: str = "method"
    rows: Names = ()  # all of the file otherwise
    paper: PaperNumbers | None = None
    _lines: tuple[RowSpec, ...] = PrivateAttr(())

    @property
    def lines(self) -> tuple[RowSpec, ...]:
        """Its rows."""
        return self._lines

    def columns(self) -> list[str]:
        """Return the headings of the columns."""
        return [str(value) for value in self.sweep.values] if self.sweep else list(self.groups or self.domains)

    def view(self) -> str:
        """Return the view that presents it."""
        return self.show or next((row.measure for row in self.lines), "") or "accuracy"

    def sample(self) -> str:
        """Return in words how many images and seeds there are, and in which batches."""
        if not any(needs_images(row.measure) for row in self.lines):
            return f"no test images: read off the trained networks, {len(self.seeds)} of each target"
        parts = {
            "images": "full test sets" if self.images is None else f"{self.images} seeded images per domain",
            "seeds": f"{len(self.seeds)} seeds" if len(self.seeds) > 1 else "one seed",
            "batch_size": f"batches of {self.batch_size}",
        }
        parts |= {} if self.protocol == PROTOCOL else {"protocol": self.protocol}
        parts.pop(self.sweep.option if self.sweep else "", None)
        for row in self.lines:
            own = [f"{name.replace('_', ' ')} {v}" for name, v in row.settings.items() if v != getattr(self, name)]
            parts |= {f"row {row.label}": f"{row.label} with {' and '.join(own)}"} if own else {}
        return ", ".join(parts.values())

    def runs(self, row: RowSpec, column: str, seed: int, locate: Locate) -> list[RunSpec]:
        """Return the runs behind one number of one seed: one, or one per domain where a sweep averages over them."""
        settings: dict[str, Any] = {name: getattr(self, name) for name in _OF_TABLES} | row.settings
        options = row.options
        streams = list(self.groups.values()) or [(domain,) for domain in self.domains]
        at = self.columns().index(column)
        if self.sweep:
            name, value = self.sweep.option, self.sweep.values[at]
            if name in SWEPT:
                if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                    raise BadOption(f"sweep over {name} with {value!r}: expected a whole number of at least 1")
                settings[name] = value
            elif name in protocol_options(settings["protocol"]):
                settings["protocol_options"] = {**settings["protocol_options"], name: value}
            elif name in row.defaults and name not in options:
                options[name] = value  # other rows have the same number in every column
        else:
            streams = [streams[at]]
        check_protocol(settings["protocol"], settings["protocol_options"])
        settings |= {
            "method": row.method or "source",
            "options": row.typed(options),
            "seed": seed,
            "measure": row.measure,
        }
        networks = [locate(row.network or self.network, s[0] if len(s) == 1 else None, seed) for s in streams]
        return [RunSpec(domains=s, network=found, **settings) for s, found in zip(streams, networks, strict=True)]

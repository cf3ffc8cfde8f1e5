"""Shared settings and field types of all record models."""

import json
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

FORMAT: Literal[2] = 2
_LIMIT = 1e15  # no measured value is larger, and sums of values below it stay finite

Count = Annotated[int, Field(ge=0, lt=_LIMIT)]
Number = Annotated[float, Field(gt=-_LIMIT, lt=_LIMIT)]
Options = dict[str, JsonValue]


class RecordModel(BaseModel):
    """An immutable model. Fields have a default only if the default means "not recorded" or "none"."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class StoredRecord(RecordModel):
    """What a results folder holds: a row of its own, found by kind and id."""

    id_field: ClassVar[str] = "name"
    kind: str
    format: Literal[2] = Field(default=FORMAT, repr=False)

    @property
    def id(self) -> str:
        """What tells it from others of its kind."""
        return str(getattr(self, self.id_field))

    def to_json(self) -> str:
        """Return one line of JSON; fields that have their default are left out."""
        content = self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps({"kind": self.kind, "format": self.format, **content}, allow_nan=False)


class Environment(RecordModel):
    """Versions and machine."""

    domainadaptor: str
    torch: str
    python: str
    device: str
    threads: int
    machine: str
    commit: str | None = None
    torchvision: str | None = None
    timm: str | None = None
    pillow: str | None = None
    numpy: str | None = None
    processor: str = ""
    processes: int | None = None  # of a training run


def summary(error: ValidationError) -> str:
    """Return the first problem of a record in one line, and how many more there are."""
    first, *more = error.errors(include_url=False)
    where = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    return (f"{where}: {message}" if where else message) + (f" (and {len(more)} more)" if more else "")

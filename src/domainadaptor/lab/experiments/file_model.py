"""The types of TOML tables, and sentences about what is wrong with them."""

import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, JsonValue

from domainadaptor.lab.records.base import RecordModel
from domainadaptor.options import suggestion

T = TypeVar("T")


def _different(values: tuple[T, ...]) -> tuple[T, ...]:
    if not values or len(set(map(str, values))) < len(values):
        raise ValueError("expected different values, at least one")
    return values


_LARGEST = 2**63 - 1  # seeds of PyTorch
Positive = Annotated[int, Field(ge=1, le=_LARGEST)]
Seed = Annotated[int, Field(ge=0, le=_LARGEST)]
_Listed = Field(strict=False)  # a list of TOML is a tuple here
Floats = Annotated[tuple[float, ...], _Listed]
Texts = Annotated[tuple[str, ...], _Listed]
Names = Annotated[tuple[str, ...], _Listed, AfterValidator(_different)]
Seeds = Annotated[tuple[Seed, ...], _Listed, AfterValidator(_different)]
Values = Annotated[tuple[JsonValue, ...], _Listed, AfterValidator(_different)]


class FileModel(RecordModel):
    """A table of a TOML file."""


def sentence(detail: Mapping[str, Any], parts: dict[str, type[FileModel]], whole: type[FileModel]) -> str:
    """Return where, what was expected and what came; `parts` are the models of named or numbered tables."""
    place = [str(part) for part in detail["loc"] if not str(part).startswith("function-")]
    where, model = "", whole
    if len(place) > 1 and place[0] in parts:
        name = f"{place[0]} {int(place[1]) + 1}" if place[1].isdigit() else f"{place[0].removesuffix('s')} {place[1]!r}"
        where, model, place = f"{name}: ", parts[place[0]], place[2:]
    field = ".".join(place)
    if detail["type"] == "extra_forbidden" and len(place) == 1:
        return f"{where}{field!r} is not known; {suggestion(field, model.model_fields)}"
    if detail["type"] == "missing":
        return f"{where}{field} is missing"
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{where}{field} = {reprlib.repr(detail['input'])}: {message}" if field else where + message

"""Validation of TOML tables that reports every problem at once."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, JsonValue, ValidationError

from domainadaptor.errors import BadOption
from domainadaptor.lab.records.base import RecordModel
from domainadaptor.options import suggestion

T = TypeVar("T")
Model = TypeVar("Model", bound="FileModel")


def _different(values: tuple[T, ...]) -> tuple[T, ...]:
    if not values or len(set(map(str, values))) < len(values):
        raise ValueError("expected different values, at least one")
    return values


_LARGEST = 2**63 - 1  # seeds of PyTorch
Positive = Annotated[int, Field(ge=1, le=_LARGEST)]
Seed = Annotated[int, Field(ge=0, le=_LARGEST)]
_Listed = Field(strict=False)  # a list of TOML is a tuple here
Texts = Annotated[tuple[str, ...], _Listed]
Names = Annotated[tuple[str, ...], _Listed, AfterValidator(_different)]
Seeds = Annotated[tuple[Seed, ...], _Listed, AfterValidator(_different)]
Values = Annotated[tuple[JsonValue, ...], _Listed, AfterValidator(_different)]


class FileModel(RecordModel):
    """A table of a TOML file; every field has a default, so that what is valid can be read despite the rest."""

    @classmethod
    def read(cls: type[Model], entry: Mapping[str, Any], problems: list[str]) -> Model:
        """Return the valid part of a table; what is wrong with the rest is added to the problems."""
        try:
            return cls.model_validate(entry)
        except ValidationError as error:
            details = error.errors(include_url=False)
        problems += dict.fromkeys(cls._sentence(detail) for detail in details)
        wrong = {detail["loc"][0] for detail in details}
        return cls.model_validate({name: value for name, value in entry.items() if name not in wrong})

    @classmethod
    def _sentence(cls, detail: Any) -> str:
        """Return what was expected and what came."""
        name = str(detail["loc"][0])
        if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
            return f"{name!r} is not known; {suggestion(name, cls.model_fields)}"
        where = ".".join(str(part) for part in detail["loc"] if not str(part).startswith("function-"))
        message = str(detail["msg"]).removeprefix("Value error, ")
        if detail["type"] == "missing":
            return f"{where} is missing"
        return f"{where} = {detail['input']!r}: {message}"


def problem_of(check: Callable[..., object], *values: Any, **named: Any) -> list[str]:
    """Return why a check fails; nothing if it does not."""
    try:
        check(*values, **named)
    except BadOption as error:
        return [str(error)]
    return []

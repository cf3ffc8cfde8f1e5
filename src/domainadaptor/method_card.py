"""What a method is, in a table's columns: paper, year, kind, needs and cost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

Kind = Literal["none", "statistics", "loss", "self-supervised", "teacher", "prediction"]
Need = Literal["features and a linear head", "a head trained for it", "source samples", "altered training"]


@dataclass(frozen=True)
class About:
    """One method."""

    paper: str
    year: int
    kind: Kind
    forwards: str  # passes a batch, "1" or "1 + views"
    backwards: str
    needs: tuple[Need, ...] = ()


def about(
    paper: str, year: int, kind: Kind, *, forwards: str, backwards: str = "0", needs: tuple[Need, ...] = ()
) -> Callable[[F], F]:
    """Says of a function in `recipes` what its method is."""

    def say(function: F) -> F:
        function.about = About(paper, year, kind, forwards, backwards, needs)  # type: ignore[attr-defined]
        return function

    return say

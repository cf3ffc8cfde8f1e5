"""Numbers as text, and means over seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds."""

    mean: float
    deviation: float | None = None  # of the population; None for one seed
    seeds: int = 1


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return mean and population deviation; None without values."""
    if not values:
        return None
    return Estimate(statistics.fmean(values), statistics.pstdev(values) if len(values) > 1 else None, len(values))


def number(value: float | None, digits: int = 1) -> str:
    """Return a rounded number, or "" for None; 80.85 becomes 80.9."""
    if value is None:
        return ""
    exact = Decimal(repr(float(value)))  # the shortest decimal form is what was meant
    text = f"{exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def signed(value: float | None, digits: int = 1) -> str:
    """Return a difference with its sign."""
    text = number(value, digits)
    return f"+{text}" if value is not None and value > 0 and float(text) != 0 else text


def with_deviation(found: Estimate | None, digits: int = 1) -> str:
    """Return mean ± deviation, or "" for None."""
    if found is None:
        return ""
    return number(found.mean, digits) + ("" if found.deviation is None else f" ± {number(found.deviation, digits)}")


def as_number(text: str) -> float | None:
    """Return the finite number that a text spells, if it does."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None

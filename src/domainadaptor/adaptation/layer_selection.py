"""Select the first layer that learns: by a fraction of the norm layers, or by name."""

from collections.abc import Sequence

from domainadaptor.errors import BadOption
from domainadaptor.options import check_number, suggestion


def layers_before(adapt_from: str | float, norms: Sequence[str]) -> tuple[str, ...]:
    """Return the norm layers before a point, given the names of all norm layers in order.

    Raises:
        BadOption: The point is neither a fraction below 1 nor a prefix of a norm layer's name.
    """
    if not isinstance(adapt_from, str):
        check_number("adapt_from", adapt_from, low=0, high=1)
        if adapt_from == 1:
            raise BadOption("adapt_from=1 leaves no layer to learn: pass less, or loss=None for no step")
        return tuple(norms[: int(adapt_from * len(norms) + 1e-9)])  # 0.1 of ten layers is one
    after = [name for name in norms if name == adapt_from or name.startswith(f"{adapt_from}.")]
    if after:
        return tuple(norms[: norms.index(after[0])])
    if adapt_from.replace(".", "", 1).isdigit():
        raise BadOption(f"adapt_from={adapt_from!r} is text: expected the number {adapt_from}")
    raise BadOption(
        f"adapt_from={adapt_from!r}: no norm layer's name starts with that; {suggestion(adapt_from, _stages(norms))}"
    )


def _stages(norms: Sequence[str]) -> list[str]:
    """Return the shortest prefixes of names that distinguish at least three points."""
    deepest = max(name.count(".") + 1 for name in norms)
    for parts in range(1, deepest + 1):
        stages = list(dict.fromkeys(".".join(name.split(".")[:parts]) for name in norms))
        if len(stages) > 2:
            break
    return stages

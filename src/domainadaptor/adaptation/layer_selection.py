"""From which layer on a network learns: a share of its norm layers, or a layer's name."""

from collections.abc import Sequence

from domainadaptor.errors import BadOption
from domainadaptor.options import check_number, suggestion


def layers_before(adapt_from: str | float, norms: Sequence[str]) -> tuple[str, ...]:
    """The norm layers before a point; `norms` are all of them, in the network's order.

    Raises:
        BadOption: The point is neither a share from 0 to 1 nor a name that a norm layer's name begins with.
    """
    if not isinstance(adapt_from, str):
        check_number("adapt_from", adapt_from, low=0, high=1)
        if adapt_from == 1:
            raise BadOption("adapt_from=1 leaves no layer that learns; expected less, or loss=None for no step")
        return tuple(norms[: int(adapt_from * len(norms) + 1e-9)])  # a tenth of ten layers is one
    if adapt_from.replace(".", "", 1).isdigit() and not _begins(adapt_from, norms):
        raise BadOption(f"adapt_from={adapt_from!r} is text: expected the number {adapt_from}")
    if not (after := _begins(adapt_from, norms)):
        raise BadOption(
            f"adapt_from={adapt_from!r}: no norm layer's name begins with that; "
            f"{suggestion(adapt_from, _stages(norms))}"
        )
    return tuple(norms[: norms.index(after[0])])


def _begins(start: str, norms: Sequence[str]) -> list[str]:
    return [name for name in norms if name == start or name.startswith(f"{start}.")]


def _stages(norms: Sequence[str]) -> list[str]:
    """The shortest beginnings of names that tell three points or more apart."""
    deepest = max(name.count(".") + 1 for name in norms)
    for parts in range(1, deepest + 1):
        stages = list(dict.fromkeys(".".join(name.split(".")[:parts]) for name in norms))
        if len(stages) > 2:
            break
    return stages

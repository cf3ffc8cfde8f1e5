"""The metadata of an ONNX file: its classes, preprocessing, method and the version that wrote it."""

from collections.abc import Iterator
from dataclasses import field
from typing import Annotated, Any

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from domainadaptor.lab.data.preprocessing import Preprocessing

ENTRY = "domainadaptor"  # the key of the card in the file
MOST_BYTES = 2**31 - 1  # of a file: protobuf has no larger messages


@validated(frozen=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))
class OnnxCard:
    """Everything that running the file takes."""

    network: str
    method: str
    classes: Annotated[tuple[str, ...], Field(min_length=1)]
    preprocessing: Preprocessing
    version: str  # of domainadaptor
    opset: int
    options: dict[str, JsonValue] = field(default_factory=dict)  # of the method
    fewest: Annotated[int, Field(ge=1)] = 1  # images that a batch needs for its statistics
    notes: tuple[str, ...] = ()


CARD = TypeAdapter(OnnxCard)


def graphs_of(model: Any) -> Iterator[Any]:
    """Yield the graph, the functions, and the graphs inside of them."""
    waiting = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]

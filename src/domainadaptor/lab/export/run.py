"""Run an ONNX file that `domainadaptor export` wrote in onnxruntime. Such a file is untrusted input."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from domainadaptor.adaptation.comparison import Watch, small_batch
from domainadaptor.adaptation.logits import finite
from domainadaptor.adaptation.result import Adaptation
from domainadaptor.errors import BadBatch, BadFile, BadOption
from domainadaptor.extras import require_extra
from domainadaptor.lab.export.card import CARD, ENTRY, MOST_BYTES, OnnxCard, graphs_of
from domainadaptor.lab.networks.loading import LoadedNetwork
from domainadaptor.lab.prediction import FolderPrediction
from domainadaptor.lab.records.base import summary

_LARGEST_SIDE = 4096
_LONGEST_CARD = 10_000_000  # characters
_ENDLESS = ("Loop", "Scan")  # operators that a small file could keep a processor busy with
_REMEDY = "write it again with `domainadaptor export`"


class OnnxNetwork:
    """An ONNX file that answers batches as an adaptor does. There is no source model beside it.

    Args:
        path: A file that `domainadaptor export` wrote.

    Raises:
        BadFile: It is not such a file, is corrupt, or refers to other files.
    """

    def __init__(self, path: Path) -> None:
        require_extra("onnx", "An ONNX file")
        self.path = path
        self.watch = Watch()
        self.card = read_card(path)
        self._session = open_session(path)
        self._held: tuple[Tensor, Tensor] | None = None  # images and their logits, from `source_logits`

    def source_logits(self, images: Tensor) -> Tensor:
        """Return the file's logits: they are all that it can compute. `adapt` need not compute them again."""
        self._held = images, self._run(images)
        return self._held[1]

    def adapt(self, images: Tensor) -> Adaptation:
        """Return the logits of a batch."""
        held, self._held = self._held, None
        logits = held[1] if held is not None and held[0] is images else self._run(images)
        warnings = () if len(images) >= self.card.fewest else (small_batch(len(images), self.card.fewest),)
        return Adaptation(logits, logits, warnings=warnings)

    def reset(self) -> None:
        """Do nothing: there is no state."""

    def loaded(self) -> LoadedNetwork:
        """Return name, classes and preprocessing as those of a checkpoint; the network is a placeholder."""
        card = self.card
        name = f"{card.network} with {card.method} (ONNX)"
        return LoadedNetwork(nn.Identity(), name, card.classes, card.preprocessing, "of the ONNX file", card.notes)

    def _run(self, images: Tensor) -> Tensor:
        logits = run_session(self._session, images)
        if logits.shape != (expected := (len(images), len(self.card.classes))):
            raise BadFile(f"{str(self.path)!r} returned {tuple(logits.shape)}, expected {expected}; {_REMEDY}")
        return logits


def without_source(found: FolderPrediction) -> FolderPrediction:
    """Return a table without the columns of the source model, which an ONNX file of another method does not have."""
    rows = (replace(row, source_prediction="", source_confidence=None) for row in found.rows)
    return replace(found, rows=tuple(rows))


def read_card(path: Path) -> OnnxCard:
    """Check a file and return its metadata, without running anything."""
    model = _parsed(path)
    for graph in graphs_of(model):
        for node in graph.node:
            if node.op_type in _ENDLESS:
                raise BadFile(
                    f"{str(path)!r} has the operator {node.op_type}, which no exported network has; {_REMEDY}"
                )
        if any(tensor.external_data or tensor.data_location for tensor in _tensors(graph)):
            raise BadFile(f"{str(path)!r} keeps weights in other files, which are not read; {_REMEDY}")
    text = next((entry.value for entry in model.metadata_props if entry.key == ENTRY), None)
    if text is None:
        raise BadFile(f"{str(path)!r} does not say which classes and preprocessing it has; {_REMEDY}")
    try:
        if len(text) > _LONGEST_CARD:
            raise ValueError(f"{len(text)} characters")
        card = CARD.validate_json(text)
    except (ValidationError, ValueError, BadOption, RecursionError) as error:
        why = summary(error) if isinstance(error, ValidationError) else str(error)
        raise BadFile(f"{str(path)!r}: invalid metadata: {why}; {_REMEDY}") from error
    _check_shapes(model.graph, card, path)
    return card


def open_session(path: Path) -> Any:
    """Return an onnxruntime session on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # what matters comes as an exception
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its classes have no common base
        raise BadFile(f"onnxruntime cannot load {str(path)!r}: {_shortened(error)}; {_REMEDY}") from error


def run_session(session: Any, images: Tensor) -> Tensor:
    """Return the logits of a batch."""
    try:
        (logits,) = session.run(["logits"], {"images": images.cpu().float().numpy()})
    except Exception as error:
        raise BadBatch(f"onnxruntime cannot run a batch of shape {tuple(images.shape)}: {_shortened(error)}") from error
    found = torch.from_numpy(logits)
    if not finite(found):
        raise BadBatch("The logits are not finite. Are the images normalized as in training?")
    return found


def _parsed(path: Path) -> Any:
    import onnx

    if not path.is_file():
        raise BadFile(f"No ONNX file at {str(path)!r}; `domainadaptor export` writes one")
    if path.stat().st_size > MOST_BYTES:
        raise BadFile(f"{str(path)!r} is larger than 2 GB, which no ONNX file is; {_REMEDY}")
    try:
        model = onnx.load(path, load_external_data=False)
        model.graph.input[0].name  # an empty file is a valid message  # noqa: B018
    except Exception as error:  # protobuf's errors have no common base
        raise BadFile(f"{str(path)!r} is not a complete ONNX file ({type(error).__name__}); {_REMEDY}") from error
    return model


def _check_shapes(graph: Any, card: OnnxCard, path: Path) -> None:
    side, found = card.preprocessing.size, {}
    for value in (*graph.input, *graph.output):
        kind = value.type.tensor_type
        found[value.name] = (kind.elem_type, [dim.dim_value for dim in kind.shape.dim])
    expected = {"images": (1, [0, 3, side, side]), "logits": (1, [0, len(card.classes)])}  # 1: float32; 0: any number
    if found != expected or side > _LARGEST_SIDE:
        raise BadFile(
            f"{str(path)!r}: expected images (batch, 3, {side}, {side}) with sides of at most {_LARGEST_SIDE} and "
            f"logits (batch, {len(card.classes)}), as its metadata say, found {found}; {_REMEDY}"
        )


def _tensors(graph: Any) -> Iterator[Any]:
    yield from getattr(graph, "initializer", ())
    for sparse in getattr(graph, "sparse_initializer", ()):
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)


def _shortened(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__

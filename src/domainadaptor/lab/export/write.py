"""Write a network with one of the single-forward methods as an ONNX file, checked in onnxruntime."""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import domainadaptor
from domainadaptor import AdaptationWarning, UnsupportedNetwork, adapt, single_forward
from domainadaptor.adaptation.logits import logits_in
from domainadaptor.errors import BadFile
from domainadaptor.extras import require_extra
from domainadaptor.lab.export.card import CARD, ENTRY, MOST_BYTES, OnnxCard, graphs_of
from domainadaptor.lab.export.run import open_session, run_session
from domainadaptor.lab.files import replacing
from domainadaptor.lab.networks.loading import LoadedNetwork

OPSET = 18
CHECKED = (1, 3, 8, 64)  # batch sizes
TOLERANCE = 1e-4  # relative error of the logits of a batch


def export_onnx(
    loaded: LoadedNetwork,
    output: Path,
    method: str = "auto",
    options: Mapping[str, Any] | None = None,
    progress: Callable[[str], object] = lambda what: None,
) -> float:
    """Write an ONNX file and return its largest relative error against PyTorch. An error leaves no file.

    Args:
        loaded: The network with its classes and preprocessing.
        output: The file to write.
        method: One of the methods with a single-forward form.
        options: The method's options.
        progress: Called with what is done next.

    Raises:
        UnsupportedNetwork: torch cannot export the network, or onnxruntime does not repeat its predictions.
        BadFile: The file cannot be written, or would be too large.
    """
    require_extra("onnx", "Export to ONNX")
    options = dict(options or {})
    network, side = loaded.network.cpu().float(), loaded.preprocessing.size
    module = _Logits(single_forward(network, method, **options))
    size = sum(tensor.numel() * tensor.itemsize for tensor in module.state_dict().values())
    if size >= MOST_BYTES:
        raise BadFile(f"An ONNX file holds at most 2 GB, but the weights of {loaded.name} take {size / 1e9:.1f} GB")
    if method == "auto":
        options = {"effort": "one", **options}
    adaptor = adapt(network, method, **options)
    adaptor.watch.compares = False
    fewest = max((norm.fewest for norm in adaptor._main.norms.values()), default=1)
    progress("export")
    model = exported(module, side, loaded.name)
    card = OnnxCard(loaded.name, method, loaded.classes, loaded.preprocessing, domainadaptor.__version__, OPSET,
                    options, fewest, loaded.notes)  # fmt: skip
    with replacing(output) as path:
        path.write_bytes(_serialized(model, card))
        return _check(path, adaptor, side, loaded.name, progress)


class _Logits(nn.Module):
    """A network that returns logits alone."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return logits_in(self.network(images))


def exported(module: nn.Module, side: int, name: str) -> Any:
    """Return the ONNX message of a module that takes any number of images of that side."""
    images = torch.zeros(2, 3, side, side)
    try:
        with _silent():
            program = torch.onnx.export(
                module.eval(),
                (images,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                input_names=["images"],
                output_names=["logits"],
                opset_version=OPSET,
                verbose=False,
            )
    except Exception as error:  # torch raises many classes, most of them private
        raise UnsupportedNetwork(f"torch cannot export {name} to ONNX: {_cause(error)}") from error
    assert program is not None
    return program.model_proto


def _cause(error: BaseException) -> str:
    """Return the first line that says what the network does that cannot be exported."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def _serialized(model: Any, card: OnnxCard) -> bytes:
    """Return the file's bytes, with its card, and without the places in the source code that torch notes."""
    for graph in graphs_of(model):
        for part in (graph, *graph.node):
            part.ClearField("metadata_props")
            part.ClearField("doc_string")
    model.metadata_props.add(key=ENTRY, value=CARD.dump_json(card).decode())
    data: bytes = model.SerializeToString()
    return data


def _check(path: Path, adaptor: nn.Module, side: int, name: str, progress: Callable[[str], object]) -> float:
    """Return the largest relative error of onnxruntime against the adaptor; raise if it is too large."""
    session = open_session(path)
    largest = 0.0
    for count in CHECKED:
        progress(f"check with {count} images")
        images = varied_images(count, side)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AdaptationWarning)
            expected = adaptor(images)
        found = run_session(session, images)
        error = float((found - expected).norm() / expected.norm()) if found.shape == expected.shape else float("inf")
        if not error <= TOLERANCE:  # nor is NaN
            raise UnsupportedNetwork(
                f"The ONNX file of {name} does not repeat PyTorch's predictions: for {count} images the relative error "
                f"is {error:.1e}, expected at most {TOLERANCE:.0e}. No file was written"
            )
        largest = max(largest, error)
    return largest


def varied_images(count: int, side: int) -> Tensor:
    """Return images that differ in color and contrast, away from what networks are trained on."""
    generator = torch.Generator().manual_seed(count)
    coarse = torch.randn(count, 3, 4, 4, generator=generator)
    smooth = nn.functional.interpolate(coarse, (side, side), mode="bilinear")
    return smooth * (0.5 + torch.rand(count, 1, 1, 1, generator=generator)) + 0.3 * torch.randn(
        count, 3, side, side, generator=generator
    )


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Hide what torch's exporter prints, logs and warns about: this library tells what matters."""
    held = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(held)

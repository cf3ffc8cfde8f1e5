"""What clients send and get: images as multipart or JSON, and tensors of the Open Inference Protocol v2."""

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from torch import Tensor

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.images import read_image_bytes
from domainadaptor.lab.prediction import best_classes
from domainadaptor.serve.model import Answer
from domainadaptor.serve.schemas import BatchPrediction, ImagePrediction, ImagesRequest, InferRequest, TensorSpec
from domainadaptor.serve.settings import ServeSettings

_MAX_LISTS = 100_000  # lists and objects in JSON: each costs far more memory than its two characters
_PIECE = 256 * 1024  # bytes of a form that are parsed at a time

_Model = TypeVar("_Model", bound=BaseModel)


class Refused(Exception):
    """The request cannot be answered; the text is for the client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def read_images(
    content_type: str, body: bytes, settings: ServeSettings, transform: Callable[[Image.Image], Tensor]
) -> Tensor:
    """Return the images of a request to `/predict`, ready for the network."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        files = list(_multipart(content_type, body, settings))
    elif kind == "application/json":
        files = list(_base64(_parsed(ImagesRequest, body).images, settings))
    else:
        raise Refused(415, "Expected multipart/form-data with image files, or application/json with base64 images.")
    if not files:
        raise Refused(400, "The request has no images.")
    left, images = settings.max_pixels, []
    for at, data in enumerate(files):
        try:
            image = read_image_bytes(data, left)
            left -= image.width * image.height
            images.append(transform(image))
        except BadFile as error:
            raise Refused(400, f"Image {at}: {error}.") from error
    return torch.stack(images)


def write_predictions(answer: Answer, classes: tuple[str, ...], with_alpha: bool) -> bytes:
    """Return the JSON of an answer to `/predict`."""
    both = zip(best_classes(answer.source, classes), best_classes(answer.result.logits, classes), strict=True)
    rows = [
        ImagePrediction(source_prediction=a, source_confidence=b, adapted_prediction=c, adapted_confidence=d)
        for (a, b), (c, d) in both
    ]
    alpha = answer.result.alpha if with_alpha else None
    found = BatchPrediction(predictions=rows, fell_back=answer.result.fell_back, note=answer.result.note, alpha=alpha)
    return found.model_dump_json(exclude=None if with_alpha else {"alpha"}).encode()


def read_tensors(body: bytes, header: int | None, settings: ServeSettings, size: int) -> tuple[InferRequest, Tensor]:
    """Return a request of the v2 protocol and its images.

    Args:
        body: The request's body: JSON, with binary tensors behind it if `header` is given.
        header: Length of the JSON in bytes.
        settings: The limits.
        size: Side of the images that the network takes.
    """
    if header is not None and not 0 < header <= len(body):
        raise Refused(400, "Inference-Header-Content-Length is not within the body.")
    request = _parsed(InferRequest, body[:header])
    asked = [output.name for output in request.outputs]
    once = len(set(asked)) == len(asked) and {"logits", "source_logits"}.issuperset(asked)
    if len(request.inputs) != 1 or request.inputs[0].name != "images" or not once:
        raise Refused(400, "Expected the input 'images' and outputs among 'logits' and 'source_logits', each once.")
    given = request.inputs[0]
    if given.datatype != "FP32" or len(given.shape) != 4 or given.shape[1:] != [3, size, size]:
        raise Refused(400, f"Expected 'images' to be FP32 of shape [N, 3, {size}, {size}].")
    if given.shape[0] < 1:
        raise Refused(400, "The request has no images.")
    _check_count(given.shape[0], settings)
    binary = b"" if header is None else body[header:]
    expected = 4 * int(np.prod(given.shape))
    if given.data is None:
        if len(binary) != expected or given.parameters.get("binary_data_size") != expected:
            raise Refused(400, f"Expected {expected} bytes of binary data for this shape, got {len(binary)}.")
        values = np.frombuffer(binary, "<f4")
    else:
        try:
            values = np.asarray(given.data, np.float32).reshape(-1)
        except (ValueError, TypeError, OverflowError):
            raise Refused(400, "Expected 'data' to be numbers.") from None
        if binary or 4 * values.size != expected:
            raise Refused(400, f"Expected {expected // 4} numbers for this shape, got {values.size}.")
    return request, torch.from_numpy(values.astype(np.float32).reshape(given.shape))


def write_tensors(answer: Answer, request: InferRequest, model: str) -> tuple[bytes, int | None]:
    """Return an answer of the v2 protocol, and the length of its JSON if binary tensors follow."""
    found = {"logits": answer.result.logits, "source_logits": answer.source}
    asked = request.outputs or [TensorSpec(name=name) for name in found]
    outputs, binary = [], b""
    for output in asked:
        values = np.ascontiguousarray(found[output.name].detach().float().numpy(), "<f4")
        entry: dict[str, Any] = {"name": output.name, "datatype": "FP32", "shape": list(values.shape)}
        if output.parameters.get("binary_data", request.parameters.get("binary_data_output", False)):
            binary += values.tobytes()
            entry["parameters"] = {"binary_data_size": values.nbytes}
        else:
            entry["data"] = values.reshape(-1).tolist()
        outputs.append(entry)
    notes = {"fell_back": answer.result.fell_back, **({"note": answer.result.note} if answer.result.note else {})}
    named = {"id": request.id} if request.id else {}
    text = json.dumps({"model_name": model, **named, "parameters": notes, "outputs": outputs}).encode()
    return text + binary, len(text) if binary else None


def _parsed(model: type[_Model], body: bytes) -> _Model:
    if body.count(b"[") + body.count(b"{") > _MAX_LISTS:
        raise Refused(400, f"Expected JSON with at most {_MAX_LISTS} lists and objects.")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))[:80] or "the body"
        raise Refused(400, f"Invalid JSON request, at {where}: {first['msg']}.") from None


def _base64(texts: list[str], settings: ServeSettings) -> Iterator[bytes]:
    _check_count(len(texts), settings)
    for at, text in enumerate(texts):
        try:
            yield base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise Refused(400, f"Image {at} is not base64.") from None


def _multipart(content_type: str, body: bytes, settings: ServeSettings) -> Iterator[bytes]:
    async def pieces() -> AsyncGenerator[bytes, None]:
        for start in range(0, len(body), _PIECE):
            yield body[start : start + _PIECE]

    # One file too many is accepted here and refused below, with the right status.
    parser = _InMemory(
        Headers({"Content-Type": content_type}), pieces(), max_files=settings.max_images + 1, max_fields=0
    )
    try:
        form = asyncio.run(parser.parse())
    except MultiPartException as error:
        if len(parser.items) > settings.max_images:
            _check_count(len(parser.items), settings)
        raise Refused(400, f"Invalid multipart request: {error.message}") from None
    files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    _check_count(len(files), settings)
    return (file.file.read() for file in files)


class _InMemory(MultiPartParser):
    spool_max_size = 2**62  # the body is in memory already; nothing is written to disk


def _check_count(images: int, settings: ServeSettings) -> None:
    if images > settings.max_images:
        raise Refused(413, f"At most {settings.max_images} images per request; split them.")

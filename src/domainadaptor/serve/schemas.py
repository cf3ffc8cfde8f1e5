"""Bodies of requests and answers."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class ImagesRequest(BaseModel):
    """Images as base64."""

    model_config = ConfigDict(extra="forbid")
    images: list[str]


class ImagePrediction(BaseModel):
    """The predictions for one image, with and without adaptation."""

    source_prediction: str
    source_confidence: float
    adapted_prediction: str
    adapted_confidence: float


class BatchPrediction(BaseModel):
    """The predictions for one request, in the order of its images."""

    predictions: list[ImagePrediction]
    fell_back: bool  # the adapted predictions are those of the source model, and the note has the reason
    note: str | None
    alpha: dict[str, float] | None = None  # weight of the source statistics by layer


class TensorSpec(BaseModel):
    """A tensor of the v2 protocol: an input with its data, or an output that is asked for."""

    name: str
    shape: list[int] = []
    datatype: str = ""
    parameters: dict[str, Any] = {}
    data: list[Any] | None = None


class InferRequest(BaseModel):
    """A request of the Open Inference Protocol v2."""

    id: str = ""
    inputs: list[TensorSpec]
    outputs: list[TensorSpec] = []
    parameters: dict[str, Any] = {}


class NewStream(BaseModel):
    """A stream of batches; whoever knows the id can use it."""

    id: str
    method: str


class LayerStatistics(BaseModel):
    """What calibration found in one norm layer."""

    shift: float  # squared distance from the source statistics; the unit is that between an image and all images
    share: float  # of the new statistics


class NewModel(BaseModel):
    """A calibrated model; whoever knows the name can use it."""

    name: str
    images: int
    layers: dict[str, LayerStatistics]
    note: str | None = None


class Problem(BaseModel):
    """Why a request was not answered."""

    error: str

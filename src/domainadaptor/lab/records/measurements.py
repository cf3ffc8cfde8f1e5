"""Values of the built-in measurements; a new measurement declares its model in its own file."""

from pydantic import Field, model_validator

from domainadaptor.lab.records.base import Count, Number, RecordModel


class StatisticsDistances(RecordModel):
    """Distances between the statistics of images, batches and the source model."""

    image_to_batch_minimum: Number = Field(alias="image-to-batch minimum")
    image_to_batch_maximum: Number = Field(alias="image-to-batch maximum")
    source_to_batch: Number = Field(alias="source-to-batch")


class StatisticsVariance(RecordModel):
    """Variance of batch statistics over training steps: the mean over layers, and per layer."""

    variance: Number
    layers: dict[str, Number] = {}


class ClassNorm(RecordModel):
    """One class: its training images, and the norm of its weights in the head."""

    name: str
    images: Count
    norm: Number


class ClassifierNorms(RecordModel):
    """Norms of the classes' weights, and their correlation with the number of training images."""

    classes: tuple[ClassNorm, ...]
    correlation: Number | None = None


class LossCurve(RecordModel):
    """A loss and the norm of its gradient, by confidence."""

    label: str
    confidence: tuple[Number, ...]
    loss: tuple[Number, ...]
    gradient: tuple[Number, ...]

    @model_validator(mode="after")
    def _as_long(self) -> "LossCurve":
        if not len(self.confidence) == len(self.loss) == len(self.gradient):
            raise ValueError("expected a loss and a gradient for each confidence")
        return self


class TemperatureEffect(RecordModel):
    """Mean sorted probabilities of confident images, without and with temperature."""

    tau: Number
    images: Count
    plain: tuple[Number, ...] = ()
    scaled: tuple[Number, ...] = ()

    @model_validator(mode="after")
    def _as_long(self) -> "TemperatureEffect":
        if len(self.plain) != len(self.scaled):
            raise ValueError("expected as many probabilities with temperature as without")
        return self


class LossCurves(RecordModel):
    """Losses by confidence, and what temperature does to them."""

    curves: tuple[LossCurve, ...]
    temperature: TemperatureEffect


VALUES: dict[str, type[RecordModel]] = {
    "statistics-distances": StatisticsDistances,
    "statistics-variance": StatisticsVariance,
    "classifier-norms": ClassifierNorms,
    "loss-curves": LossCurves,
}

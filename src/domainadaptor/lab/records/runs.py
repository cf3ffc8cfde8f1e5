"""Records of runs: one network, one method or measurement, one order of images."""

import hashlib
import json
from functools import cached_property
from typing import Any, Literal, TypeVar

from pydantic import JsonValue, model_validator

from domainadaptor.lab.records.base import Count, Environment, Number, Options, RecordModel, StoredRecord
from domainadaptor.lab.records.measurements import VALUES
from domainadaptor.lab.records.training import TrainingRequest

_MANY = 100  # classes, above which a record has no confusion
Values = TypeVar("Values", bound=RecordModel)
Matrix = tuple[tuple[Count, ...], ...]  # true class x predicted class; empty with many classes
Bins = tuple[tuple[Count, Number, Count], ...]  # per bin of confidence: images, sum of confidences, correct predictions


class CheckpointInfo(RecordModel):
    """The network of a run."""

    name: str  # as the experiment file calls it
    sha256: str
    network: str | None = None  # None if the file could not be opened
    size: Count | None = None
    sources: tuple[str, ...] = ()
    seed: Count
    command: str = ""  # that trains it, to be shown
    training: TrainingRequest | None = None  # None if it was not trained for an experiment
    note: str = ""


class RunSettings(RecordModel):
    """Everything that decides the numbers of one run."""

    dataset: str
    data_options: Options = {}
    data: str  # fingerprint of the data set
    domains: tuple[str, ...]
    checkpoint: CheckpointInfo
    validation: tuple[str, ...] = ()  # domains that the network was trained on: validation images only
    raw: Options = {}  # preprocessing and classes given for a file of weights
    measure: str = ""  # a measurement instead of a method's accuracy
    method: str = ""
    options: Options = {}
    protocol: str = ""
    protocol_options: Options = {}
    batch_size: Count
    images: Count | None = None  # per domain at most
    order: Count
    seed: Count
    sources: tuple[str, ...] = ()  # domains that stand for the source; the network's own otherwise

    @cached_property
    def id(self) -> str:
        """Return a hash of the settings; labels do not count, and 1 and 1.0 are the same."""
        known = self.checkpoint.model_dump(exclude={"name", "command", "note", "training"}, exclude_none=True)
        added = ("validation", "raw", "measure")  # after the first records: they count if they are set
        own = self.model_dump(exclude={"checkpoint", *added, *(METHOD_FIELDS if self.measure else ())})
        own |= {name: value for name in added if (value := getattr(self, name))}
        text = json.dumps(_canonical({**own, "checkpoint": known}), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


METHOD_FIELDS = ("method", "protocol", "protocol_options", "sources")  # that a measurement does not have


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _canonical(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class PreprocessingInfo(RecordModel):
    """How images were prepared."""

    size: Count
    resize: Count
    mean: tuple[Number, ...]
    std: tuple[Number, ...]
    interpolation: str
    squash: bool


class RunRecord(StoredRecord):
    """What evaluations and measurements have in common."""

    run: RunSettings
    command: str  # that repeats it
    failed: str = ""  # the reason, if it failed
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    preprocessing: PreprocessingInfo | None = None
    defaults: Options = {}  # of options that the run did not set
    took: Number | None = None  # seconds
    environment: Environment
    finished: str  # UTC, ISO 8601

    @property
    def id(self) -> str:
        """The id of its settings."""
        return self.run.id


class ChangedPrediction(RecordModel):
    """An image whose prediction changed."""

    name: str
    label: Count
    source: Count
    adapted: Count
    source_confidence: Number
    confidence: Number


class Score(RecordModel):
    """Counts of one domain. "Source" is the source model; "before" is the prediction before the adaptation step."""

    images: Count
    right: Count
    source_right: Count
    before_right: Count
    better: Count
    worse: Count
    changed: Count
    confusion: Matrix
    source_confusion: Matrix
    calibration: Bins
    source_calibration: Bins
    examples: tuple[ChangedPrediction, ...] = ()

    @model_validator(mode="after")
    def _counts_agree(self) -> "Score":
        for name in ("right", "source_right", "before_right", "better", "worse", "changed"):
            if getattr(self, name) > self.images:
                raise ValueError(f"{name} is larger than images")
        for prefix in ("", "source_"):
            name, right = f"{prefix}confusion", getattr(self, f"{prefix}right")
            matrix = getattr(self, name)
            if not matrix:
                continue
            if any(len(line) != len(matrix) for line in matrix):
                raise ValueError(f"{name}: expected as many columns as rows")
            if (sum(map(sum, matrix)), sum(line[at] for at, line in enumerate(matrix))) != (self.images, right):
                raise ValueError(f"{name} contradicts the counts of images and correct predictions")
        return self


class SegmentScore(RecordModel):
    """Counts of one segment of the stream."""

    name: str
    fresh: bool = False  # the adaptor was reset before it
    images: Count
    right: Count
    source_right: Count


class ComparedSeconds(RecordModel):
    """Seconds of the batches on which the source model was timed too."""

    batches: Count
    adapting: Number
    plain: Number


class Seconds(RecordModel):
    """Seconds spent in adaptation."""

    batches: Count
    images: Count
    adapting: Number
    compared: ComparedSeconds


class EvaluationRecord(RunRecord):
    """The accuracy of a method."""

    kind: Literal["evaluation"] = "evaluation"
    images: dict[str, Count] = {}
    skipped: dict[str, str] = {}
    classes: tuple[str, ...] = ()
    scores: dict[str, Score] = {}
    segments: tuple[SegmentScore, ...] = ()
    alpha: dict[str, Number] = {}  # layer -> mean over batches
    seconds: Seconds | None = None
    memory: Number | None = None  # peak, in megabytes above the start
    warnings: tuple[str, ...] = ()  # why adaptation may have done harm
    fell_back: Count = 0  # batches that the guard predicted with the source model

    @model_validator(mode="after")
    def _complete(self) -> "EvaluationRecord":
        if not self.run.method or self.run.measure:
            raise ValueError("run: expected a method")
        if not self.failed and (not self.scores or self.seconds is None):
            raise ValueError("scores and seconds are missing")
        for domain, score in self.scores.items():
            expected = len(self.classes) if len(self.classes) <= _MANY else 0
            if {len(score.confusion), len(score.source_confusion)} != {expected}:
                raise ValueError(f"scores of {domain}: expected confusions of {expected} classes")
            if any(max(e.label, e.source, e.adapted) >= len(self.classes) for e in score.examples):
                raise ValueError(f"scores of {domain}: an example has a class that does not exist")
        return self


class MeasurementRecord(RunRecord):
    """The values of a measurement."""

    kind: Literal["measurement"] = "measurement"
    values: dict[str, JsonValue] = {}

    @model_validator(mode="after")
    def _complete(self) -> "MeasurementRecord":
        if not self.run.measure:
            raise ValueError("run: expected a measurement")
        if not self.failed and self.run.measure in VALUES:
            self.read(VALUES[self.run.measure])
        return self

    def read(self, model: type[Values]) -> Values:
        """Return the values as an object of a measurement's model."""
        return model.model_validate_json(json.dumps(self.values))

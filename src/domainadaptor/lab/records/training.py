"""Records of training runs."""

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, JsonValue, ValidationError

from domainadaptor.lab.records.base import Count, Environment, Number, Options, RecordModel, StoredRecord, summary

RECORD_FILE = "record.json"  # in the folder of a training run


class TrainingSettings(RecordModel):
    """Everything that decides how one network is trained."""

    dataset: str
    sources: tuple[str, ...] = ()
    data: str = ""  # fingerprint of the data set
    network: str
    weights: str  # "pretrained", "none", or the name of a file or of another run
    start: str = ""  # digest of that file
    algorithm: str
    options: Options = {}
    select: str
    select_options: Options = {}
    norm: str
    size: Count
    epochs: Count
    batch_size: Count
    lr: Number
    head_lr: Number
    momentum: Number
    weight_decay: Number
    schedule: str
    warmup: Number
    head_bias: bool
    precision: str
    seed: Count


class TrainingRequest(RecordModel):
    """The training that an experiment asks for; known before the data are there."""

    settings: TrainingSettings  # without fingerprint and digest
    target: str | None = None  # the held-out domain; None where the sources are listed
    start: "TrainingRequest | None" = None  # the training whose network it starts from


class Validation(RecordModel):
    """Scores on the validation images of the source domains."""

    accuracy: Number
    loss: Number
    domains: dict[str, Number]
    step: Count | None = None


class EpochScores(RecordModel):
    """One epoch; algorithms may add losses and accuracies."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]

    epoch: Count
    seconds: Number
    lr: Number
    loss: Number
    accuracy: Number
    images_per_second: Number
    validation: Validation | None = None


class TrainingRecord(StoredRecord):
    """One training run."""

    kind: Literal["training"] = "training"
    name: str = ""  # of the run; its folder in a file that does not name it
    recipe: TrainingSettings
    started_from: str
    note: str
    splits: str
    images: dict[str, Count]
    skipped: dict[str, str]
    unreadable: tuple[str, ...]
    source_validation: Validation
    target_accuracy: dict[str, Number]
    chosen: str
    seconds: Number
    seconds_of_this_process: Number
    epochs: tuple[EpochScores, ...]
    statistics_variance: dict[str, dict[str, Number]]  # layer -> of "mean" and "std" ("var" in older records)
    environment: Environment
    command: str


def read_training(path: Path) -> TrainingRecord:
    """Return the training record in a file, named by its folder (by the file, unless that is record.json).

    Any problem is a ValueError.
    """
    try:
        record = TrainingRecord.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        raise ValueError(summary(error)) from error
    name = path.parent.name if path.name == RECORD_FILE else path.stem
    return record if record.name else record.model_copy(update={"name": name})

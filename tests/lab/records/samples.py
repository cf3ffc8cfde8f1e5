"""Small valid records, for tests of everything that reads them."""

from domainadaptor.lab.records.base import Environment
from domainadaptor.lab.records.plans import DomainManifest, Manifest, Plan, PlannedRow, PlannedRun, PlannedTable
from domainadaptor.lab.records.runs import (
    CheckpointInfo,
    ComparedSeconds,
    EvaluationRecord,
    MeasurementRecord,
    RunSettings,
    Score,
    Seconds,
)
from domainadaptor.lab.records.training import EpochScores, TrainingRecord, TrainingSettings, Validation

ENVIRONMENT = Environment(
    domainadaptor="0.1.0", torch="2.10", python="3.11", device="cpu", threads=1, machine="x86_64", processor="a CPU"
)
CHECKPOINT = CheckpointInfo(name="mine", sha256="00", network="resnet20", size=12, sources=("day",), seed=0)


def settings(**changes) -> RunSettings:
    given = {
        "dataset": "folders",
        "data": "fingerprint",
        "domains": ("night",),
        "checkpoint": CHECKPOINT,
        "method": "tent",
        "protocol": "leave-one-out",
        "batch_size": 64,
        "order": 0,
        "seed": 0,
    }
    return RunSettings(**{**given, **changes})


def score(right=3, source_right=2, images=4) -> Score:
    """Two classes; all wrong predictions are images of class 0 that are taken for class 1."""

    def confusion(correct):
        return ((0, images - correct), (0, correct))

    bins = ((images, images * 0.75, right),)
    return Score(
        images=images,
        right=right,
        source_right=source_right,
        before_right=source_right,
        better=max(0, right - source_right),
        worse=max(0, source_right - right),
        changed=abs(right - source_right),
        confusion=confusion(right),
        source_confusion=confusion(source_right),
        calibration=bins,
        source_calibration=((images, images * 0.75, source_right),),
    )


def evaluation(*, run=None, **changes) -> EvaluationRecord:
    run = run or settings()
    given = {
        "run": run,
        "command": "domainadaptor evaluate",
        "images": dict.fromkeys(run.domains, 4),
        "classes": ("cat", "dog"),
        "scores": {domain: score() for domain in run.domains},
        "seconds": Seconds(
            batches=1, images=4, adapting=0.5, compared=ComparedSeconds(batches=1, adapting=0.5, plain=0.25)
        ),
        "environment": ENVIRONMENT,
        "finished": "2024-01-01T00:00:00Z",
    }
    return EvaluationRecord(**{**given, **changes})


def measurement(measure="statistics-variance", values=None, **changes) -> MeasurementRecord:
    given = {
        "run": settings(method="", protocol="", measure=measure),
        "command": "domainadaptor evaluate",
        "values": {"variance": 1.5, "layers": {"bn1": 1.5}} if values is None else values,
        "environment": ENVIRONMENT,
        "finished": "2024-01-01T00:00:00Z",
    }
    return MeasurementRecord(**{**given, **changes})


def plan(name="small", runs=None) -> Plan:
    wanted = tuple(PlannedRun(id=run, command="domainadaptor evaluate") for run in runs or [settings().id])
    row = PlannedRow(label="Tent", cells={"night": (wanted,)})
    return Plan(name=name, title="Small", tables=(PlannedTable(title="One", columns=("night",), rows=(row,)),))


def training(name="a-run") -> TrainingRecord:
    recipe = TrainingSettings(
        dataset="folders", sources=("day",), network="resnet20", weights="none", algorithm="erm", select="best",
        norm="batch", size=12, epochs=1, batch_size=8, lr=0.1, head_lr=1.0, momentum=0.9, weight_decay=0.0,
        schedule="step", warmup=0.0, head_bias=False, precision="float32", seed=0,
    )  # fmt: skip
    validation = Validation(accuracy=50.0, loss=1.0, domains={"day": 50.0})
    epoch = EpochScores(epoch=1, seconds=1.0, lr=0.1, loss=1.0, accuracy=50.0, images_per_second=9.0, extra_loss=2.0)
    return TrainingRecord(
        name=name, recipe=recipe, started_from="none", note="", splits="a tenth", images={"day": 8}, skipped={},
        unreadable=(), source_validation=validation, target_accuracy={"night": 25.0}, chosen="best", seconds=1.0,
        seconds_of_this_process=1.0, epochs=(epoch,), statistics_variance={"bn1": {"mean": 1.0, "std": 2.0}},
        environment=ENVIRONMENT, command="domainadaptor train",
    )  # fmt: skip


def manifest() -> Manifest:
    domain = DomainManifest(images=4, classes={"cat": 2, "dog": 2}, parts={"train": 4}, tested="all", sha256="00")
    return Manifest(name="folders", fingerprint="fingerprint", splits="a tenth", domains={"night": domain})

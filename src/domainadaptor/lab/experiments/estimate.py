"""How long runs will take: images, times the passes that their method was measured to take."""

from collections.abc import Iterable
from statistics import median

from domainadaptor.errors import AdaptationError
from domainadaptor.lab.data.registry import published_images
from domainadaptor.lab.experiments.run_spec import RunSpec
from domainadaptor.lab.experiments.sweep import Sweep
from domainadaptor.lab.records.runs import EvaluationRecord
from domainadaptor.lab.records.store import AnyRun

_PASSES = 3.0  # of a method without a record: forward, backward, and prediction after the step


def passes_by_method(records: Iterable[AnyRun]) -> dict[str, float]:
    """Return the median time of adaptation by method, in plain inferences of the same batches."""
    ratios: dict[str, list[float]] = {}
    for record in records:
        compared = record.seconds.compared if isinstance(record, EvaluationRecord) and record.seconds else None
        if compared and compared.plain:
            ratios.setdefault(record.run.method, []).append(compared.adapting / compared.plain)
    return {method: median(values) for method, values in ratios.items()}


def minutes_for(specs: Iterable[RunSpec], sweep: Sweep, passes: dict[str, float]) -> float | None:
    """Return an estimate; None if the time of a network or the number of images is unknown."""
    total = 0.0
    for spec in specs:
        milliseconds = sweep.experiment.networks.entry(spec.network.label).milliseconds
        try:
            dataset = sweep.runner.dataset(spec.dataset, spec.data_options)
            counts = {name: len(dataset.domain(name).select("test")) for name in spec.domains}
        except AdaptationError:
            counts = published_images(spec.dataset)
        if not milliseconds or not set(spec.domains) <= counts.keys():
            return None
        images = sum(min(counts[name], spec.images or counts[name]) for name in spec.domains)
        total += images * (1 + (0.0 if spec.measure else passes.get(spec.method, _PASSES))) * milliseconds / 60_000
    return round(total, 1)

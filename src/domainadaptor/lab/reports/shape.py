"""Whether a record holds what its kind says, so that tables and figures need not ask."""

from collections.abc import Mapping, Sequence
from typing import Any

MEASURES = ("statistics-distances", "statistics-variance", "classifier-norms", "loss-curves")
_BEYOND = 1e15  # nothing that is measured here is larger, and sums of numbers below it are finite
_COUNTS = ("images", "right", "source_right")
_MORE_COUNTS = ("before_right", "better", "worse", "changed")


def check_record(record: Mapping[str, Any]) -> None:
    """Refuses a record with a missing part, or whose counts contradict each other.

    Raises:
        ValueError: It is one, and which part it is.
    """
    run = _mapping(record, "run")
    for name in ("options", "data_options", "protocol_options"):
        _mapping(run, name, needed=False)
    _kinds(run, "run", str, ("dataset", "data", "method", "protocol", "measure"))
    _kinds(run, "run", int, ("batch_size", "images", "order", "seed"))
    checkpoint = _mapping(run, "checkpoint", needed=False)
    _kinds(checkpoint, "checkpoint", str, ("name", "sha256", "command", "network", "note"))
    _kinds(checkpoint, "checkpoint", int, ("size", "seed"))
    _is(_list_of(checkpoint.get("sources") or [], str), "checkpoint: sources", "a list of names")
    _mapping(record, "environment", needed=False)
    _is(all(map(_count, _mapping(record, "images", needed=False).values())), "images", "a count a domain")
    if "failed" in record:
        _is(isinstance(record["failed"], str), "failed", "a reason in words")
    elif record["kind"] == "measurement":
        _measurement(run, _mapping(record, "values"))
    else:
        _evaluation(record)


def _evaluation(record: Mapping[str, Any]) -> None:
    classes = record.get("classes", [])
    _is(_list_of(classes, str), "classes", "a list of names")
    for domain, score in _mapping(record, "scores").items():
        _is(isinstance(score, dict), f"scores of {domain}", "an object")
        _score(score, f"scores of {domain}", len(classes))
    segments = record.get("segments", [])
    _is(_list_of(segments, dict), "segments", "a list of objects")
    for segment in segments:
        _is(isinstance(segment.get("name"), str), "segments", "objects with a name")
        _counts(segment, f"segment {segment['name']}")
    alpha = _mapping(record, "alpha", needed=False)
    _is(all(_number(value) for value in alpha.values()), "alpha", "a number a layer")
    seconds = _mapping(record, "seconds", needed=False)
    for timed in (seconds, _mapping(seconds, "compared", needed=False)):
        _is(all(_number(timed.get(name, 0)) for name in ("batches", "adapting", "plain")), "seconds", "numbers")
    _is(record.get("memory") is None or _number(record["memory"]), "memory", "a number or null")
    _is(_count(record.get("fell_back", 0)), "fell_back", "a count")
    _is(_list_of(record.get("notes", []), str), "notes", "a list of sentences")
    _mapping(record, "skipped", needed=False)


def _score(score: Mapping[str, Any], where: str, classes: int) -> None:
    _counts(score, where)
    for name, whole in (("confusion", "right"), ("source_confusion", "source_right")):
        if name in score:
            matrix = score[name]
            _is(
                _list_of(matrix, list) and len(matrix) == classes and all(len(line) == classes for line in matrix),
                f"{where}: {name}",
                f"{classes} rows of {classes} counts",
            )
            _is(all(_count(value) for line in matrix for value in line), f"{where}: {name}", "counts")
            same = (sum(map(sum, matrix)), sum(matrix[at][at] for at in range(classes)))
            _is(same == (score["images"], score[whole]), f"{where}: {name}", f"the same counts as images and {whole}")
    for name in ("calibration", "source_calibration"):
        bins = score.get(name, [])
        _is(
            _list_of(bins, list) and all(len(entry) == 3 and all(map(_number, entry)) for entry in bins),
            f"{where}: {name}",
            "bins of images, confidence and right answers",
        )
    examples = score.get("examples", [])
    _is(_list_of(examples, dict), f"{where}: examples", "a list of objects")
    for example in examples:
        _is(
            isinstance(example.get("name"), str)
            and all(_count(example.get(key)) and example[key] < classes for key in ("label", "source", "adapted"))
            and all(_number(example.get(key, 0)) for key in ("source_confidence", "confidence")),
            f"{where}: examples",
            "a name, and classes by number",
        )


def _counts(score: Mapping[str, Any], where: str) -> None:
    for name in (*_COUNTS, *(name for name in _MORE_COUNTS if name in score)):
        _is(_count(score.get(name)) and score[name] <= score["images"], f"{where}: {name}", "a count of images")


def _measurement(run: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    measure = run.get("measure")
    if measure == "statistics-distances":
        _is(bool(values) and all(map(_number, values.values())), "values", "a number a distance")
    elif measure == "statistics-variance":
        layers = _mapping(values, "layers", needed=False)
        _is(_number(values.get("variance")) and all(map(_number, layers.values())), "values", "a variance, and layers'")
    elif measure == "classifier-norms":
        classes: Any = values.get("classes")
        _is(
            _list_of(classes, dict)
            and all(
                isinstance(c.get("name"), str) and _number(c.get("images")) and _number(c.get("norm")) for c in classes
            ),
            "values",
            "classes with name, images and norm",
        )
    elif measure == "loss-curves":
        curves: Any = values.get("curves")
        _is(_list_of(curves, dict) and all(map(_curve, curves)), "values", "curves of the same length as confidence")
    else:
        raise ValueError(f"run: measure: expected one of {', '.join(MEASURES)}, got {measure!r}")


def _curve(curve: Mapping[str, Any]) -> bool:
    confidence: Any = curve.get("confidence")
    return (
        isinstance(curve.get("label"), str)
        and _numbers(confidence)
        and all(
            _numbers(curve[name]) and len(curve[name]) == len(confidence)
            for name in ("loss", "gradient")
            if name in curve
        )
    )


def _mapping(parent: Mapping[str, Any], name: str, needed: bool = True) -> Mapping[str, Any]:
    value = parent.get(name, None if needed else {})
    _is(isinstance(value, dict), name, "an object")
    return value  # type: ignore[no-any-return]


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_number, value))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _BEYOND


def _count(value: Any) -> bool:
    return isinstance(value, int) and _number(value) and value >= 0


def _kinds(parent: Mapping[str, Any], where: str, kind: type, names: Sequence[str]) -> None:
    for name in names:
        value = parent.get(name)
        _is(value is None or isinstance(value, kind), f"{where}: {name}", f"a value of the kind {kind.__name__}")


def _list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(entry, kind) for entry in value)


def _is(true: bool, what: str, expected: str) -> None:
    if not true:
        raise ValueError(f"{what}: expected {expected}")

"""A closer look at one row of a table: the images whose answer changed, and which class was taken for which."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from PIL import Image

from domainadaptor.lab.reports.cells import Record, mean_over
from domainadaptor.lab.reports.counts import accuracy, confusion
from domainadaptor.lab.reports.figures.changed import Changed, draw_changed
from domainadaptor.lab.reports.figures.confusion import draw_confusion
from domainadaptor.lab.reports.plans import RowPlan
from domainadaptor.lab.reports.views.shown import Ask, Figure

# From a record's run, a domain and the name of an image to the image; None if it is not on this machine.
ImageReader = Callable[[Mapping[str, Any], str, str], Image.Image | None]

NO_IMAGES = (
    "The images themselves are not on this machine, so those whose answer changed are not shown: "
    "`domainadaptor report --root FOLDER` with the folder that holds the data shows them."
)
_SHOWN = 12  # images


def best_row(ask: Ask) -> RowPlan | None:
    """The row that ends highest, of those that adapt and are whole; any with records if none is."""
    adapted = [row for row in ask.table.rows if row.value == "after" and _adapts(ask.records(row))]
    if not adapted:
        return None

    def height(row: RowPlan) -> tuple[bool, float]:
        whole = mean_over([cell for cell in ask.cells(row).values() if cell.expected], accuracy)
        return whole is not None, whole.mean if whole else accuracy(ask.records(row)) or 0.0

    return max(adapted, key=height)


def confusion_figure(ask: Ask, row: RowPlan) -> Figure | None:
    """Confusion of a row's method, untouched and adapted, over all its records of the same classes.

    Of one column, the best, where several show the same domains.
    """
    views = ask.views(row)
    column = max(views, key=lambda name: accuracy(views[name]) or 0.0)
    records = _same_classes(views[column])
    before, after = confusion(records, "source"), confusion(records)
    if before is None or after is None:
        return None
    classes = records[0]["classes"]
    where = ", ".join(dict.fromkeys(domain for record in records for domain in record["scores"]))
    what = f"{row.label}, column {column}" if column else row.label
    caption = f"{what}: which class was taken for which, by the untouched network and adapted ({where})."
    return Figure(f"{ask.name}-confusion", caption, partial(draw_confusion, before, after, classes))


def changed_figure(ask: Ask, row: RowPlan, read: ImageReader) -> Figure | None:
    """Some test images whose answer the method changed; None where no image can be read."""
    images: list[Changed] = []
    for record, domain, example in _alternating(ask.records(row)):
        if len(images) == _SHOWN:
            break
        picture = read(record["run"], domain, example["name"])
        if picture is not None:
            names = record["classes"]
            images.append(
                Changed(
                    picture, domain, names[example["label"]],
                    names[example["source"]], example.get("source_confidence"),
                    names[example["adapted"]], example.get("confidence"),
                )
            )  # fmt: skip
    if not images:
        return None
    caption = (
        f"{row.label}: test images whose answer changed, with the true class above; below it the answer of the "
        "untouched network (before) and of the adapted one (after). A sample for the eye, up to half of it for the "
        "better; the page has the shares of all images, among more numbers of the same runs."
    )
    return Figure(f"{ask.name}-changed", caption, partial(draw_changed, images))


def has_examples(ask: Ask, row: RowPlan) -> bool:
    """Whether the records name images whose answer changed."""
    return next(_alternating(ask.records(row)), None) is not None


def _adapts(records: Sequence[Record]) -> bool:
    return any(record["run"].get("method") != "source" for record in records)


def _same_classes(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.get("classes") == records[0].get("classes")]


def _alternating(records: Sequence[Record]) -> Iterator[tuple[Record, str, Mapping[str, Any]]]:
    """Examples of all domains in turn, each once, those for the better and the others in turn."""
    queues: dict[tuple[str, bool], list[tuple[Record, str, Mapping[str, Any]]]] = {}
    seen = set()
    for record in records:
        for domain, score in record["scores"].items():
            for example in score.get("examples", []):
                key = (record["run"].get("dataset"), example["name"])  # one picture may be in several domains
                if key not in seen:
                    seen.add(key)
                    better = example["adapted"] == example["label"]
                    queues.setdefault((domain, better), []).append((record, domain, example))
    waiting = list(queues.values())
    while waiting:
        for queue in waiting:
            yield queue.pop(0)
        waiting = [queue for queue in waiting if queue]

"""The ways in which a plan's table can be shown, by the name that plans use."""

from collections.abc import Callable

from domainadaptor.lab.reports.cells import Shelf
from domainadaptor.lab.reports.plans import TablePlan
from domainadaptor.lab.reports.records import Results
from domainadaptor.lab.reports.shape import MEASURES
from domainadaptor.lab.reports.views import (
    accuracy,
    alpha,
    classifier_norms,
    details,
    loss_curves,
    price,
    segments,
    statistics,
    time,
)
from domainadaptor.lab.reports.views.shown import Ask, Shown
from domainadaptor.options import suggestion

SHOWS: dict[str, Callable[[Ask], Shown]] = {
    "accuracy": accuracy.show,
    "accuracy-curve": accuracy.show_curve,
    "time": time.show,
    "price": price.show,
    "alpha": alpha.show,
    "details": details.show,
    "segments": segments.show,
    "statistics-distances": statistics.show_distances,
    "statistics-variance": statistics.show_variance,
    "classifier-norms": classifier_norms.show,
    "loss-curves": loss_curves.show,
}


def ask_for(table: TablePlan, name: str, results: Results) -> Ask:
    """A table of a plan, with the records that it may be made of."""
    kind = table.show if table.show in MEASURES else "evaluation"
    return Ask(table, name, Shelf(results.records, results.damaged, kind))


def show(ask: Ask) -> Shown:
    """The table as its plan wants it; of a way that is not known, what is wrong."""
    known = SHOWS.get(ask.table.show)
    if known is None:
        wanted = ask.table.show
        return Shown(problem=f"the plan wants it shown as {wanted!r}, which is not known; {suggestion(wanted, SHOWS)}")
    return known(ask)

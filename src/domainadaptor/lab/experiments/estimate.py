"""How long cells may take: images, times passes, times what a plain pass takes."""

import re
from collections.abc import Iterable

import domainadaptor
from domainadaptor.errors import AdaptationError
from domainadaptor.lab.data.registry import published_images
from domainadaptor.lab.experiments.run_spec import Cell
from domainadaptor.lab.experiments.sweep import Grid


def minutes_for(cells: Iterable[Cell], grid: Grid) -> float | None:
    """A guess; None where the time of a network was never measured, or the images cannot be counted."""
    wanted = list(cells)
    if any(not grid.experiment.networks.plan(cell.network.label).milliseconds for cell in wanted):
        return None
    try:
        return round(sum(_seconds(cell, grid) for cell in wanted) / 60, 1)
    except AdaptationError:
        return None


def _seconds(cell: Cell, grid: Grid) -> float:
    """Images, times passes, times what a plain pass takes an image."""
    plan = grid.experiment.networks.plan(cell.network.label)
    counts = _images(cell, grid)
    images = sum(min(counts[name], cell.images or counts[name]) for name in cell.domains)
    if cell.measure:
        return images * plan.milliseconds / 1000
    described = domainadaptor.method_info(cell.method)
    more = not {"loss", "predict"}.isdisjoint(cell.options)
    # A backward for activations alone costs about as much as a forward.
    own = _number(described.forwards, more) + _number(described.backwards, more) if described else 1
    if described and "views" in described.forwards:
        own += cell.options.get("views", domainadaptor.method_info(cell.method).defaults["views"])
    return images * (1 + own) * plan.milliseconds / 1000


def _images(cell: Cell, grid: Grid) -> dict[str, int]:
    """Of each domain; as published where the data are not on this machine.

    Raises:
        AdaptationError: They are not here, and how many there are is not known.
    """
    try:
        dataset = grid.workshop.dataset(cell.dataset, cell.data_options)
    except AdaptationError:
        published = published_images(cell.dataset)
        if set(cell.domains) <= published.keys():
            return published
        raise
    return {name: len(dataset.domain(name).select("test")) for name in cell.domains}


def _number(text: str, most: bool) -> float:
    """The first number in a description as "1 (2 if it predicts after)", or the largest."""
    found = [int(digits) for digits in re.findall(r"\d+", text)] or [1]
    return float(max(found) if most else found[0])

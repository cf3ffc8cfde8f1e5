"""The forms in which a table can be shown: the folder is the registry, and a file's function has the file's name."""

from dataclasses import dataclass

from domainadaptor.lab.reports.figures import ReportFigure
from domainadaptor.lab.reports.tables import PrintedTable, ResultNumber


@dataclass(frozen=True)
class View:
    """A table of an experiment, ready to be written."""

    tables: tuple[PrintedTable, ...] = ()
    more: tuple[PrintedTable, ...] = ()  # for the page only
    figures: tuple[ReportFigure, ...] = ()
    numbers: tuple[ResultNumber, ...] = ()
    problem: str = ""  # why there is nothing to show

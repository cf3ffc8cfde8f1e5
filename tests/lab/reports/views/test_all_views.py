import pytest

from domainadaptor.lab.records.measurements import VALUES
from domainadaptor.lab.reports.sections import VIEWS
from domainadaptor.registry import table as registered
from tests.lab.reports.folder import planned_row, shown, table
from tests.lab.reports.measurements import losses

NAMES = list(registered(VIEWS))


def test_an_unknown_view_is_explained(made):
    found = shown(made, table("t", [], show="acuracy"))
    assert "did you mean 'accuracy'" in found.problem
    assert not found.tables


@pytest.mark.parametrize("name", NAMES)
def test_every_view_does_without_records(made, name):
    planned = table("t", [made.row("Tent", "tent", ["sketch"], keep=False)], ["sketch"], show=name)
    found = shown(made, planned)
    assert not found.figures
    assert not found.problem


@pytest.mark.parametrize("name", NAMES)
def test_records_of_another_kind_are_gaps_with_a_reason(made, name):
    measured = made.measurement("loss-curves", losses(None))
    counted = made.add(made.record(["sketch"], "tent"))
    wrong = counted if name in VALUES else measured
    rows = [planned_row("x", {"sketch": [[wrong]]})]
    found = shown(made, table("t", rows, ["sketch"], show=name))
    assert not found.figures
    states = {number.state for number in found.numbers}
    assert states <= {"failed", "missing"}

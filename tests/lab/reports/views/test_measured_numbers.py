"""A measurement that has no view is shown by its numbers."""

from domainadaptor.lab.records.plans import Plan, PlannedRow, PlannedRun, PlannedTable
from domainadaptor.lab.reports.sections import chapters
from tests.lab.records.samples import measurement


def test_a_measurement_without_a_view_is_shown_by_its_numbers():
    record = measurement("my-own", {"confidence": 71.25, "images": 4, "names": ["a"], "flag": True})
    row = PlannedRow(label="mine", cells={"night": ((PlannedRun(id=record.id),),)})
    table = PlannedTable(title="One", show="my-own", columns=("night",), rows=(row,))
    plan = Plan(name="small", title="Small", tables=(table,))
    ((chapter),) = chapters([plan], {record.id: record})
    view = chapter.sections[0].view
    assert not view.problem
    assert {(number.row, number.value) for number in view.numbers} == {("confidence", 71.25), ("images", 4.0)}

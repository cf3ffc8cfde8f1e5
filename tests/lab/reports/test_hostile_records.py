"""Records and plans that were changed at random make a report, or are refused when they are read."""

import copy
import json
import random

import pytest

from domainadaptor.lab.records.store import parse
from domainadaptor.lab.reports.report import ResultsReport, write
from domainadaptor.lab.reports.sections import chapters
from tests.lab.reports.test_report import everything

VALUES = [0, -1, 10**14, 0.5, "", "=1", "<b>", [], {}, None, True, [1], [[1]], {"a": 1}, "a/b", "\x00", "é" * 300]
ROUNDS = 1  # a hundred rounds of other seeds found nothing more


def places(value, path=()):
    """The path of every part of a JSON value; of long lists the first parts only."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for name, part in items:
        yield (*path, name)
        yield from places(part, (*path, name))


def changed(body, rng):
    new = copy.deepcopy(body)
    *path, last = rng.choice(list(places(new)))
    part = new
    for name in path:
        part = part[name]
    if rng.random() < 0.3:
        del part[last]
    elif isinstance(part[last], list) and rng.random() < 0.5:
        part[last] = part[last][:-1]
    else:
        part[last] = rng.choice(VALUES)
    return new


def valid(body, rng):
    for _ in range(8):
        try:
            return parse(json.dumps(changed(body, rng)))
        except ValueError:
            continue
    return parse(json.dumps(body))


def renamed(value, ids):
    """A plan whose runs have the ids of changed records."""
    if isinstance(value, dict):
        return {k: ids.get(v, v) if k == "id" else renamed(v, ids) for k, v in value.items()}
    return [renamed(part, ids) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_changed_records_are_refused_or_reported(tmp_path, seed):
    rng = random.Random(seed)
    made = everything(tmp_path / "made")
    records = [valid(json.loads(r.to_json()), rng) if rng.random() < 0.3 else r for r in made.records.values()]
    ids = dict(zip(made.records, [record.id for record in records], strict=True))
    plans = [renamed(json.loads(valid(json.loads(plan.to_json()), rng).to_json()), ids) for plan in made.plans]
    found = chapters([parse(json.dumps(plan)) for plan in plans], {record.id: record for record in records})
    assert write(ResultsReport(tuple(found)), tmp_path / "out")

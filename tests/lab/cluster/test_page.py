"""The numbers of docs/cluster.md are those of docs/cluster.json, which tools/measure_cluster.py writes."""

import importlib.util
import json
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[3]


def test_the_page_has_the_measured_numbers():
    if not (CLONE / "docs" / "cluster.json").is_file():
        pytest.skip("nothing was measured yet: python tools/measure_cluster.py")
    tool = CLONE / "tools" / "measure_cluster.py"
    spec = importlib.util.spec_from_file_location("measure_cluster", tool)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = json.loads((CLONE / "docs" / "cluster.json").read_text(encoding="utf-8"))
    assert module.page(found) in (CLONE / "docs" / "cluster.md").read_text(encoding="utf-8")

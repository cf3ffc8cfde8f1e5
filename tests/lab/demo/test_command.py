import json
import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_demo_as_a_user_runs_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "domainadaptor", "demo", "--output", "out"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "domainadaptor-t" in done.stdout
    found = json.loads((tmp_path / "out" / "demo.json").read_text())
    assert all(accuracy > 90 for accuracy in found["accuracy_in_domain"].values())
    assert found["mean_accuracy"]["adamixbn"] > found["mean_accuracy"]["source"] + 5
    assert len(set(found["mean_accuracy"].values())) == 6  # each ingredient shows
    assert "…" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert (tmp_path / "out" / "demo.png").stat().st_size > 10_000

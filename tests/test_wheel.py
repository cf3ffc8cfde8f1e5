import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_a_wheel_installed_outside_the_clone_works(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT], check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    place = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-deps", "--target", place, wheel], check=True, capture_output=True
    )
    code = (
        "import domainadaptor, pathlib; root = pathlib.Path(domainadaptor.__file__).parent; "
        f"assert str(root).startswith({str(place)!r}), root; assert (root / 'py.typed').is_file(); "
        "assert all((root / 'lab' / 'reports' / name).is_file() for name in ('paper.csv', 'page.css')); "
        "print(len(domainadaptor.list_methods()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(place), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 6

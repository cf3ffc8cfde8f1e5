"""Which revision of the source a record was made with."""

import subprocess
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


@cache
def revision() -> str | None:
    """The commit of the checkout that this package is run from; None where it is installed."""
    if not (_ROOT / ".git").exists():  # a repository further up is not ours
        return None
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        found = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()

"""What a record was made with: versions, machine, and the revision of the source."""

import platform
import re
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import domainadaptor

_PACKAGES = ("torchvision", "timm", "pillow", "numpy")  # that decode, resize, or build networks
_ROOT = Path(__file__).resolve().parents[3]


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions and machine, for a record."""
    cpuinfo = Path("/proc/cpuinfo")  # of Linux
    text = cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.is_file() else ""
    processor = re.search(r"^model name\s*:(.*)$", text, re.MULTILINE)
    return {
        "domainadaptor": domainadaptor.__version__,
        "commit": revision(),
        "torch": torch.__version__,
        **{name: version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "processor": processor[1].strip() if processor else platform.processor(),
    }


@cache
def revision() -> str | None:
    """Return the commit of the checkout that this package is run from; None where it is installed."""
    if not (_ROOT / ".git").exists():  # a repository further up is not ours
        return None
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        found = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()

"""Settings of the whole process. The library makes none; the program makes them here, once."""

import os
import sys
import warnings
from io import TextIOWrapper
from typing import Any

from domainadaptor.errors import AdaptationWarning
from domainadaptor.lab.allocator import keep_freed_memory


def prepare_process() -> None:
    """Prepare streams, environment and allocator for a command."""
    # Nothing is ever downloaded, and looking for weights on a hub hangs without a network.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an odd file name must not end a run
    if sys.stderr.isatty() and _Announce not in sys.meta_path:
        sys.meta_path.insert(0, _Announce)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # decoders complain about files that they can read
    warnings.filterwarnings("ignore", category=AdaptationWarning)  # commands say it in their own words
    keep_freed_memory()


class _Announce:
    """An import hook: prints "loading…", for the next output to overwrite, before torch takes seconds to import."""

    @staticmethod
    def find_spec(name: str, path: Any, target: Any = None) -> None:
        """Find nothing; the other finders do."""
        if name == "torch":
            sys.meta_path.remove(_Announce)
            print("loading…", end="\r", file=sys.stderr, flush=True)

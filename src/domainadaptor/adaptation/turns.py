"""Turns: one caller at a time, in threads and forked processes, and whatever line an interrupt stops."""

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from domainadaptor.errors import AdaptationError


class Turns:
    """Admit one caller at a time, outside of inference mode, and undo what a caller leaves unfinished.

    An interrupt may come at any line, also while something is undone: then the next caller undoes it. A thread never
    locks itself out, because the lock can be taken twice by a thread, and a call from inside a call is told from one
    after an interrupted call by the stack. Copies have turns of their own.
    """

    def __init__(self) -> None:
        self._caller: FrameType | None = None  # the function that has the turn
        self.renew()

    def renew(self) -> None:
        """Forget who has the turn."""
        self._lock, self._caller = threading.RLock(), None
        _EVERY.add(self)

    @contextmanager
    def take(self, undo: Callable[[], None]) -> Iterator[None]:
        """Wait for the turn; call `undo` before and after it.

        Raises:
            AdaptationError: This thread has the turn.
        """
        if _is_running(self._caller):
            raise AdaptationError("An adaptor was called from inside its own call (by a hook?). Call it afterwards.")
        with self._lock, torch.inference_mode(False), torch.enable_grad():
            self._caller = sys._getframe(2)
            try:
                undo()
                yield
            finally:
                undo()
                self._caller = None

    def __reduce__(self) -> tuple[type["Turns"], tuple[()]]:
        return Turns, ()


def _is_running(function: FrameType | None) -> bool:
    """Return whether a function is on the stack of this thread."""
    frame: FrameType | None = None if function is None else sys._getframe(1)
    while frame is not None and frame is not function:
        frame = frame.f_back
    return frame is not None


_EVERY: "weakref.WeakSet[Turns]" = weakref.WeakSet()


def _renew_all() -> None:
    """Free a forked process from the turns of threads that only its parent has."""
    for turns in list(_EVERY):
        turns.renew()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew_all)

"""Stop a call at any line of the library that runs during it."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import domainadaptor

OWN = str(Path(domainadaptor.__file__).parent)

Line = tuple[CodeType, int]


def traced(function: Callable[[], object], on_line: Callable[[Line], None]) -> None:
    """Call a function and report each line of the library before it runs."""

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            on_line((frame.f_code, frame.f_lineno))
        return local

    def call(frame: FrameType, event: str, _: Any) -> Any:
        return local if frame.f_code.co_filename.startswith(OWN) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        function()
    finally:
        sys.settrace(before)


def lines_of(function: Callable[[], object], file: str = "") -> list[int]:
    """The first and the last time that each line, or each of a file, runs, as numbers of lines run before."""
    ran: list[Line] = []
    traced(function, ran.append)
    first = {line: at for at, line in reversed(list(enumerate(ran)))}
    last = {line: at for at, line in enumerate(ran)}
    return sorted({at for at in (*first.values(), *last.values()) if ran[at][0].co_filename.endswith(file)})


def stop_at(function: Callable[[], object], at: int, error: type[BaseException]) -> str:
    """Call a function and raise an error before the line of that number; return which line it was."""
    count, where = 0, ""

    def look(line: Line) -> None:
        nonlocal count, where
        count += 1
        if count == at + 1:
            where = f"{Path(line[0].co_filename).name}:{line[1]} in {line[0].co_name}"
            raise error(where)

    try:
        traced(function, look)
    except error:
        assert where, "the call itself raised"
    assert where, "the call has fewer lines"
    return where

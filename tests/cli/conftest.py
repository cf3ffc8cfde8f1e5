"""The program, run in this process: starting it anew takes ten seconds of imports each time."""

import sys
from typing import NamedTuple

import pytest

from domainadaptor.cli import main


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def program(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments) -> Done:
        monkeypatch.setattr(sys, "argv", ["domainadaptor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return run

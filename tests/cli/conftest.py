"""The program, run in this process because imports take seconds; and a folder for experiments."""

import sys
from typing import NamedTuple

import pytest

from domainadaptor.cli import main
from tests.cli.small_experiment import TEXT
from tests.lab.experiments.pictures import make_checkpoint, make_pictures


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


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setenv("DOMAINADAPTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    make_pictures(tmp_path / "pictures")
    make_checkpoint(tmp_path / "night.safetensors")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "small.toml").write_text(TEXT)
    return tmp_path

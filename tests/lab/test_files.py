import os
import stat

import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.files import owned, remove_leftovers, replacing


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def stumble():
        with replacing(path) as beside:
            beside.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        stumble()
    assert path.read_text() == "old"
    with replacing(path) as beside:
        beside.write_text("new")
        beside.chmod(0o600)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) & 0o044 == 0o044 & ~_umask()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def _umask():
    held = os.umask(0)
    os.umask(held)
    return held


def test_a_place_that_cannot_be_written_is_explained(tmp_path):
    with pytest.raises(BadFile, match="Cannot write"), replacing(tmp_path / "none" / "file") as beside:
        beside.write_text("x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadFile, match="Cannot create the folder"), owned(tmp_path / "file" / "below"):
        pass


def test_a_folder_is_owned_by_one(tmp_path):
    with owned(tmp_path / "run"), pytest.raises(BadFile, match="Another process"), owned(tmp_path / "run"):
        pass
    with owned(tmp_path / "run"):
        pass


def test_what_killed_processes_left_is_removed(tmp_path):
    gone = 2**22 + 5  # above the largest number of a process
    (tmp_path / f".resume.pt.{gone}").write_text("half")
    (tmp_path / f".building-x.{gone}").mkdir()
    (tmp_path / f".resume.pt.{os.getpid()}").write_text("mine")
    (tmp_path / ".lock").write_text("")
    remove_leftovers(tmp_path, ".*")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".lock", f".resume.pt.{os.getpid()}"]

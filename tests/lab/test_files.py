import os
import stat

import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.files import csv_text, locked, owned, remove_leftovers, replacing


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


@pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")
def test_a_lock_that_is_a_link_is_refused_and_its_target_stays(tmp_path):
    (tmp_path / "precious").write_text("keep me")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(BadFile, match="Cannot write"), owned(tmp_path / "run"):
        pass
    assert (tmp_path / "precious").read_text() == "keep me"
    (tmp_path / "plain").write_text("also kept")
    with locked(tmp_path / "plain") as acquired:
        assert acquired
    assert (tmp_path / "plain").read_text() == "also kept"


@pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")
def test_a_link_in_place_of_the_temporary_file_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("keep me")
    (tmp_path / f".file.{os.getpid()}").symlink_to(tmp_path / "precious")
    with replacing(tmp_path / "file") as beside:
        beside.write_text("new")
    assert (tmp_path / "precious").read_text() == "keep me"
    assert (tmp_path / "file").read_text() == "new"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("step", ["unlink", "replace", "chmod", "_sync"])
def test_an_error_of_any_step_is_one_message_and_leaves_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    place = "domainadaptor.lab.files._sync" if step == "_sync" else f"pathlib.Path.{step}"

    def write():
        with replacing(path) as beside:
            beside.write_text("new")
            monkeypatch.setattr(place, fail)

    if step == "unlink":  # what is left is removed later
        write()
        assert path.read_text() == "new"
    else:
        with pytest.raises(BadFile, match="Input/output error"):
            write()
        assert path.read_text() == "old"
    monkeypatch.undo()


def test_leftovers_that_cannot_be_removed_stop_nothing(tmp_path, monkeypatch):
    (tmp_path / f".a.{2**22 + 5}").write_text("half")

    def fail(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("pathlib.Path.unlink", fail)
    with owned(tmp_path):
        pass
    monkeypatch.undo()


@pytest.mark.skipif(os.name != "posix", reason="folders cannot be synchronized on Windows")
def test_the_folder_is_synchronized_after_the_file_has_its_name(tmp_path, monkeypatch):
    done = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(handle):
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        real_sync(handle)

    def replace(*names, **more):
        done.append("rename")
        real_replace(*names, **more)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    with replacing(tmp_path / "file") as beside:
        beside.write_text("new")
    assert done == ["file", "rename", "folder"]


@pytest.mark.parametrize(
    ("text", "safe"),
    [("=cmd|'/c calc'!A1", "'=cmd|'/c calc'!A1"), ("+1", "'+1"), ("-1.jpg", "'-1.jpg"), ("@SUM(1)", "'@SUM(1)"),
     ("\t=1", "'\t=1"), ("\r=1", "'\r=1"), ("", ""), ("dog/1=2.jpg", "dog/1=2.jpg"), ("−1", "−1")],
)  # fmt: skip
def test_text_of_a_csv_file_is_no_formula(text, safe):
    assert csv_text(text) == safe

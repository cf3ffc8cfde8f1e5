"""Finished batches survive a stop, belong to one task, and are read in file order."""

import os
from contextlib import suppress

import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.cluster.partial_table import partial_files, partial_table
from domainadaptor.lab.prediction import FilePrediction, PredictedBatch


def batch(*positions, note=None):
    return PredictedBatch({at: FilePrediction(f"{at}.png", "a", 0.5, "b", 0.25) for at in positions}, {"at": 1}, note)


def interrupted(output, task="one"):
    """Open the table, add two batches in the wrong order, and stop."""
    with suppress(KeyboardInterrupt), partial_table(output, task) as table:
        table.add_checked({3: FilePrediction("3.txt", skipped="no image")})
        table.add({1: batch(4, 0, note="second")})
        table.add({0: batch(2, 1, note="first")}, stream=5, state=b"learned")
        raise KeyboardInterrupt


def test_finished_batches_are_there_after_a_stop(tmp_path):
    output = tmp_path / "out.csv"
    interrupted(output)
    with partial_table(output, "one") as table:
        assert [row.file for row in table] == ["0.png", "1.png", "2.png", "3.txt", "4.png"]
        assert [row.skipped for row in table][3] == "no image"
        assert next(iter(table)) == FilePrediction("0.png", "a", 0.5, "b", 0.25)
        assert (len(table), table.finished(), table.checked()) == (5, {0, 1}, {3})
        assert [found.note for found in table.batches()] == ["first", "second"]
        assert (table.state(5), table.state(0)) == (b"learned", None)
        table.add({1: batch(4, 0, note="again")})
        assert [found.note for found in table.batches()] == ["first", "second"]
    assert list(tmp_path.iterdir()) == []


def test_batches_of_another_task_are_refused(tmp_path):
    interrupted(tmp_path / "out.csv")
    with (
        pytest.raises(BadFile, match="other images, another network or other options"),
        partial_table(tmp_path / "out.csv", "two"),
    ):
        pass
    interrupted(tmp_path / "other.csv", "two")


def test_two_processes_do_not_write_one_table(tmp_path):
    with partial_table(tmp_path / "out.csv", "one") as table:
        table.add({0: batch(0)})
        with pytest.raises(BadFile, match="Another process writes"), partial_table(tmp_path / "out.csv", "one"):
            pass
        assert table.finished() == {0}


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="it needs the permissions of POSIX")
def test_what_others_could_have_changed_is_not_read(tmp_path):
    interrupted(tmp_path / "out.csv")
    path = partial_files(tmp_path / "out.csv")[0]
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o666)
    with pytest.raises(BadFile, match="can be changed by other users"), partial_table(tmp_path / "out.csv", "one"):
        pass


def test_a_corrupt_file_is_explained(tmp_path):
    path = partial_files(tmp_path / "out.csv")[0]
    path.write_bytes(b"no database" * 100)
    path.chmod(0o600)
    with pytest.raises(BadFile, match="delete it to start over"), partial_table(tmp_path / "out.csv", "one"):
        pass

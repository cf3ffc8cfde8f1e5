"""Records survive whatever happens to them."""

import json
import multiprocessing
import os
import signal

import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.experiments.store import FORMAT, Store, checked_record

RECORD = {"kind": "evaluation", "format": FORMAT, "id": "abc", "run": {"method": "tent"}, "scores": {"a": {"right": 1}}}


def test_what_is_written_is_read(tmp_path):
    store = Store(tmp_path)
    assert store.read("abc") is None
    store.write(RECORD)
    assert store.read("abc") == RECORD
    assert store.peek("abc") is not None
    assert os.listdir(tmp_path / "records") == ["abc.json"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"right": 1', '"right": 2'),
        lambda text: "[]",
        lambda text: "",
        lambda text: text.replace('"format": 1', '"format": 7'),
    ],
    ids=["cut", "edited", "other", "empty", "format"],
)
def test_a_damaged_record_is_put_aside_and_made_again(tmp_path, spoil):
    said = {}
    store = Store(tmp_path, said.__setitem__)
    store.write(RECORD)
    path = tmp_path / "records" / "abc.json"
    text = spoil(path.read_text())
    path.write_text(text)
    assert store.peek("abc") is None
    assert path.read_text() == text, "only reading it for use puts it aside"
    assert not said
    assert store.read("abc") is None
    assert list(said) == ["abc.json"]
    assert (tmp_path / "records" / "abc.json.damaged").read_text() == text
    store.write(RECORD)
    assert store.read("abc") == RECORD


def test_a_failed_cell_is_not_done(tmp_path):
    store = Store(tmp_path)
    store.write({key: value for key, value in RECORD.items() if key != "scores"} | {"failed": "no memory"})
    assert store.read("abc")["failed"] == "no memory"
    assert store.peek("abc") is None


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.write(RECORD)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BadFile, match="No space left"):
        store.write(RECORD | {"scores": {}})
    monkeypatch.undo()
    assert store.read("abc") == RECORD
    assert os.listdir(tmp_path / "records") == ["abc.json"]


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadFile, match="--output"):
        Store(tmp_path / "file" / "results")


def _hold(folder, held, leave):
    with Store(folder).claim("abc") as own:
        held.put(own)
        leave.wait()


def test_a_cell_is_claimed_once_and_a_killed_process_lets_go(tmp_path):
    context = multiprocessing.get_context("spawn")
    held, leave = context.Queue(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path, held, leave))
    other.start()
    assert held.get(timeout=60)
    store = Store(tmp_path)
    with store.claim("abc") as own:
        assert not own
    with store.claim("another") as own:
        assert own
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    with store.claim("abc") as own:
        assert own


def test_the_sum_does_not_depend_on_the_order_of_names(tmp_path):
    Store(tmp_path).write(RECORD)
    content = json.loads((tmp_path / "records" / "abc.json").read_text())
    assert checked_record(json.dumps(dict(reversed(content.items()))).encode()) == RECORD


def test_a_record_under_another_name_is_put_aside(tmp_path):
    said = {}
    store = Store(tmp_path, said.__setitem__)
    store.write(RECORD)
    (tmp_path / "records" / "abc.json").rename(tmp_path / "records" / "abd.json")
    assert store.read("abd") is None
    assert "'abc'" in said["abd.json"]


def test_every_damaged_record_is_kept(tmp_path):
    store = Store(tmp_path)
    path = tmp_path / "records" / "abc.json"
    for text in ("first", "second", "third"):
        path.write_text(text)
        assert store.read("abc") is None
    assert {aside.read_text() for aside in (tmp_path / "records").iterdir()} == {"first", "second", "third"}


def test_two_processes_may_put_the_same_record_aside(tmp_path, monkeypatch):
    from domainadaptor.lab.experiments import store as stores

    path = tmp_path / "records" / "abc.json"
    store = Store(tmp_path)
    path.write_text("{")

    def gone(content):
        path.unlink()
        raise ValueError("it is no record")

    monkeypatch.setattr(stores, "checked_record", gone)
    assert store.read("abc") is None


def test_a_record_that_cannot_be_read_stays_and_is_said(tmp_path):
    store = Store(tmp_path)
    (tmp_path / "records" / "abc.json").mkdir()
    with pytest.raises(BadFile, match="cannot read"):
        store.read("abc")
    assert (tmp_path / "records" / "abc.json").is_dir()

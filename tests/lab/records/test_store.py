"""A results folder keeps what is finished, whatever happens to it."""

import gzip
import json
import multiprocessing
import os
import signal
import sqlite3
import stat
import tracemalloc

import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.records.store import DATABASE, EXPORT, Store, has_results
from tests.lab.records.samples import evaluation, manifest, measurement, plan, settings, training

ALL = [evaluation(), measurement(), plan(), training(), manifest()]
SPAWN = multiprocessing.get_context("spawn")


def everything(store):
    return [*store.runs().values(), *store.plans(), *store.trainings(), *store.manifests()]


def test_what_is_written_is_read(tmp_path):
    with Store(tmp_path / "results") as store:
        store.write(*ALL)
        assert everything(store) == ALL
        assert store.run(ALL[0].id) == ALL[0]
        assert store.plan("small") == ALL[2]
        assert store.run("none") is None
        assert store.plan("none") is None
        assert store.has("manifest", "fingerprint")
    assert (tmp_path / "results").is_dir()
    with Store(tmp_path / "results") as store:
        assert everything(store) == ALL


def test_a_later_record_replaces_an_earlier_one(tmp_path):
    with Store(tmp_path) as store:
        store.write(evaluation(failed="no memory", scores={}, seconds=None))
        store.write(evaluation())
        assert not store.run(settings().id).failed
        assert len(store.runs()) == 1


SPOILED = {
    "cut": "UPDATE entries SET body = substr(body, 1, 50)",
    "edited": "UPDATE entries SET body = replace(body, 'tent', 'eata')",
    "empty": "UPDATE entries SET body = ''",
    "not text": "UPDATE entries SET body = x'ff00ff'",
    "another id": "UPDATE entries SET id = 'abc'",
    "another kind": "UPDATE entries SET kind = 'measurement'",
}


def spoil(folder, statement):
    db = sqlite3.connect(folder / DATABASE)
    db.execute(statement)
    db.commit()
    db.close()


@pytest.mark.parametrize("statement", SPOILED.values(), ids=SPOILED)
def test_a_corrupt_record_is_named_kept_aside_and_recomputed(tmp_path, statement):
    said = []
    with Store(tmp_path, said.append) as store:
        store.write(evaluation())
        spoil(tmp_path, statement)
        assert store.runs() == {}
        (text,) = said
        assert text.startswith("Record ")
        assert " is corrupt and will be recomputed: " in text
        assert store.runs() == {}
        assert len(said) == 1, "it was set aside"
        store.write(evaluation())
        assert list(store.runs()) == [settings().id]
        ((count,),) = store._db.execute("SELECT COUNT(*) FROM corrupt").fetchall()
        assert count == 1, "nothing is lost"


def test_reading_alone_leaves_a_corrupt_record_where_it_is(tmp_path):
    with Store(tmp_path) as store:
        store.write(evaluation(), measurement())
    spoil(tmp_path, "UPDATE entries SET body = '{' WHERE kind = 'evaluation'")
    for _ in range(2):
        said = []
        with Store(tmp_path, said.append, readonly=True) as store:
            assert list(store.runs()) == [measurement().id]
        assert len(said) == 1
        assert "left out" in said[0]


def test_a_file_that_is_no_database_is_a_message_and_stays(tmp_path):
    (tmp_path / DATABASE).write_bytes(b"no database" * 100)
    for readonly in (False, True):
        with pytest.raises(BadFile, match="corrupt; move it away"):
            Store(tmp_path, readonly=readonly)
    assert (tmp_path / DATABASE).read_bytes() == b"no database" * 100


def test_a_database_that_was_cut_is_a_message(tmp_path):
    with Store(tmp_path) as store:
        store.write(*ALL, *(evaluation(run=settings(seed=seed)) for seed in range(50)))
    path = tmp_path / DATABASE
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(BadFile, match="move it away"), Store(tmp_path) as store:
        everything(store)


def test_a_folder_that_cannot_be_made_is_a_message(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadFile, match="choose another"):
        Store(tmp_path / "file" / "results")


def test_reading_makes_nothing(tmp_path):
    with Store(tmp_path / "none", readonly=True) as store:
        assert everything(store) == []
    assert not (tmp_path / "none").exists()
    assert not has_results(tmp_path)


def test_a_full_disk_is_a_message_and_keeps_what_was_there(tmp_path):
    with Store(tmp_path) as store:
        store.write(evaluation())
        store._db.execute(f"PRAGMA max_page_count = {store._db.execute('PRAGMA page_count').fetchone()[0]}")
        with pytest.raises(BadFile, match="full"):
            store.write(*(evaluation(run=settings(seed=seed)) for seed in range(500)))
        assert list(store.runs()) == [settings().id]


def test_an_export_has_everything_in_the_same_bytes(tmp_path):
    written = []
    for name, entries in (("a", ALL), ("b", ALL[::-1])):
        with Store(tmp_path / name) as store:
            store.write(*entries)
            written.append(store.export().read_bytes())
    assert written[0] == written[1]
    lines = gzip.decompress(written[0]).decode().splitlines()
    assert len(lines) == len(ALL)
    assert [json.loads(line)["id"] for line in lines if '"evaluation"' in line] == [settings().id]


@pytest.mark.parametrize("readonly", [False, True])
def test_a_folder_with_an_export_alone_has_its_records(tmp_path, readonly):
    with Store(tmp_path / "first") as store:
        store.write(*ALL)
        content = store.export().read_bytes()
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / EXPORT).write_bytes(content)
    assert has_results(tmp_path / "second")
    with Store(tmp_path / "second", readonly=readonly) as store:
        assert everything(store) == ALL
    assert (tmp_path / "second" / DATABASE).exists() is not readonly


@pytest.mark.parametrize("readonly", [False, True])
def test_an_export_that_is_newer_than_the_database_adds_its_records(tmp_path, readonly):
    """As after `git pull` in a folder where runs were done too."""
    with Store(tmp_path / "there") as store:
        store.write(evaluation(took=1.0), measurement(), plan("small", ["other"]))
        content = store.export().read_bytes()
    with Store(tmp_path / "here") as store:
        store.write(evaluation(took=2.0), evaluation(run=settings(seed=1)), plan())
    (tmp_path / "here" / EXPORT).write_bytes(content)
    with Store(tmp_path / "here", readonly=readonly) as store:
        assert len(store.runs()) == 3
        assert store.run(settings().id).took == 2.0, "runs of this machine stay"
        assert store.plan("small") == plan("small", ["other"])
        if not readonly:
            store.write(plan())
    with Store(tmp_path / "here", readonly=readonly) as store:
        assert store.plan("small") == (plan("small", ["other"]) if readonly else plan()), "it is added once"


def test_corrupt_lines_of_an_export_are_named_and_the_rest_is_read(tmp_path):
    with Store(tmp_path / "first") as store:
        store.write(evaluation(), measurement())
        lines = gzip.decompress(store.export().read_bytes()).decode().splitlines()
    (tmp_path / "second").mkdir()
    wrong = [lines[0][:50], "[]", lines[0].replace("tent", "eata"), lines[1]]
    (tmp_path / "second" / EXPORT).write_bytes(gzip.compress("\n".join(wrong).encode()))
    said = []
    with Store(tmp_path / "second", said.append) as store:
        assert list(store.runs()) == [measurement().id]
    assert [text[:6] for text in said] == ["Line 1", "Line 2", "Line 3"]


def test_an_export_that_was_cut_gives_what_is_readable(tmp_path):
    with Store(tmp_path / "first") as store:
        store.write(*(evaluation(run=settings(seed=seed)) for seed in range(500)))
        content = store.export().read_bytes()
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / EXPORT).write_bytes(content[: len(content) // 2])
    said = []
    with Store(tmp_path / "second", said.append, readonly=True) as store:
        assert 0 < len(store.runs()) < 500
    assert "corrupt" in said[-1]


def test_an_export_that_is_a_bomb_is_read_up_to_a_limit(tmp_path):
    with Store(tmp_path / "first") as store:
        store.write(evaluation())
        line = gzip.decompress(store.export().read_bytes())
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / EXPORT).write_bytes(gzip.compress(line + bytes(50_000_000)))
    said = []
    tracemalloc.start()
    with Store(tmp_path / "second", said.append, readonly=True) as store:
        assert list(store.runs()) == [settings().id]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "more than 200 times as large" in said[-1]
    assert peak < 30_000_000, "it was not decompressed as a whole"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_must_not_be_written_can_be_read(tmp_path):
    check_readonly(tmp_path)


def check_readonly(folder):
    with Store(folder) as store:
        store.write(*ALL)
    mode = folder.stat().st_mode
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with Store(folder, readonly=True) as store:
            assert everything(store) == ALL
        with pytest.raises(BadFile, match="choose another"), Store(folder) as store:
            store.write(evaluation(run=settings(seed=1)))
    finally:
        folder.chmod(mode)


def test_reading_leaves_every_byte_of_the_folder(tmp_path):
    """Also while another process has it open, whose last records are in the write-ahead log."""
    with Store(tmp_path) as store:
        store.write(*ALL)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("-shm")}
        assert len(before) == 2, "the log holds the records"
        with Store(tmp_path, readonly=True) as reader:
            assert everything(reader) == ALL
        assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name in before}
        assert len(list(tmp_path.iterdir())) == 3


def _claim(folder, held, leave):
    with Store(folder) as store, store.claim("abc") as own:
        held.put(own)
        leave.wait()


def test_a_run_is_claimed_once_and_a_killed_process_loses_its_claim(tmp_path):
    held, leave = SPAWN.Queue(), SPAWN.Event()
    other = SPAWN.Process(target=_claim, args=(tmp_path, held, leave))
    other.start()
    assert held.get(timeout=60)
    with Store(tmp_path) as store:
        with store.claim("abc") as own:
            assert not own
        with store.claim("another") as own:
            assert own
        os.kill(other.pid, signal.SIGKILL)
        other.join()
        with store.claim("abc") as own:
            assert own
            with store.claim("abc") as again:
                assert not again, "not even by the same process"
        assert store._db.execute("SELECT COUNT(*) FROM claims").fetchone() == (0,)


def test_another_process_with_the_number_of_a_dead_owner_does_not_keep_its_claim(tmp_path):
    with Store(tmp_path) as store, Store(tmp_path) as other, store.claim("abc"):
        with other.claim("abc") as own:
            assert not own
        store._db.execute("UPDATE claims SET started = started - 1")
        with other.claim("abc") as own:
            assert own


def test_a_database_with_more_columns_of_claims_is_used_as_it_is(tmp_path):
    """As earlier versions made it."""
    columns = "id TEXT PRIMARY KEY, owner TEXT, host TEXT, pid INTEGER, started REAL, beat REAL"
    spoil(tmp_path, f"CREATE TABLE claims ({columns}) WITHOUT ROWID")
    with Store(tmp_path) as store, store.claim("abc") as own:
        assert own


def test_a_claim_ends_with_an_error(tmp_path):
    with Store(tmp_path) as store:
        with pytest.raises(KeyboardInterrupt), store.claim("abc"):
            raise KeyboardInterrupt
        with store.claim("abc") as own:
            assert own


def _write_forever(folder, ready):
    with Store(folder) as store:
        for seed in range(100_000):
            store.write(evaluation(run=settings(seed=seed)))
            ready.put(seed)


def test_a_process_killed_while_it_writes_loses_no_finished_record_and_leaves_no_half_one(tmp_path):
    ready = SPAWN.SimpleQueue()
    other = SPAWN.Process(target=_write_forever, args=(tmp_path, ready))
    other.start()
    for _ in range(30):
        last = ready.get()
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    for readonly in (True, False):
        with Store(tmp_path, pytest.fail, readonly=readonly) as store:
            seeds = {record.run.seed for record in store.runs().values()}
            assert set(range(last + 1)) <= seeds
            assert seeds == set(range(len(seeds)))


def _race(folder, done):
    with Store(folder) as store:
        for seed in range(40):
            record = evaluation(run=settings(seed=seed))
            with store.claim(record.id) as own:
                if own and store.run(record.id) is None:
                    done.put(seed)
                    store.write(record)


def test_processes_that_race_never_do_a_run_twice(tmp_path):
    done = SPAWN.SimpleQueue()
    racing = [SPAWN.Process(target=_race, args=(tmp_path, done)) for _ in range(3)]
    for process in racing:
        process.start()
    for process in racing:
        process.join()
        assert process.exitcode == 0
    seeds = []
    while not done.empty():
        seeds.append(done.get())
    assert len(seeds) == len(set(seeds))
    with Store(tmp_path) as store:
        assert {record.run.seed for record in store.runs().values()} == set(seeds)

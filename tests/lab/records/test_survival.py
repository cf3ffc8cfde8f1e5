"""Records survive: every write that fails, every moment at which a process is killed, every race.

The figures of the promises are `long`; a sample of each runs always, with the same code.
"""

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.records.store import DATABASE, EXPORT, Store
from tests.lab.records.samples import evaluation, settings

resource = pytest.importorskip("resource")  # POSIX
SPAWN = multiprocessing.get_context("spawn")
RECORDS = 12
WORK = Path(__file__).with_name("survival_work.py")
SHIM = Path(__file__).with_name("failing_io.c")


def expected(count=RECORDS):
    return {(record := evaluation(run=settings(seed=seed))).id: record for seed in range(count)}


def finish(folder):
    """Do what is missing, and return the bytes of the export."""
    with Store(folder) as store:
        for name, record in expected().items():
            with store.claim(name) as own:
                assert own, "a dead owner keeps no claim"
                if store.run(name) is None:
                    store.write(record)
        assert store.runs() == expected()
        return store.export().read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The export of a folder in which nothing went wrong."""
    return finish(tmp_path_factory.mktemp("whole"))


def survives(folder, written, whole):
    """Nothing that was reported as written is lost, nothing is torn, and the end is the same."""
    known = expected()
    with Store(folder, pytest.fail) as store:
        found = store.runs()
    assert written <= found.keys() <= known.keys()
    assert all(found[name] == known[name] for name in found)
    if (folder / EXPORT).exists():
        assert (folder / EXPORT).read_bytes() in (whole,), "a file is replaced whole or not at all"
    assert finish(folder) == whole


def limits(count):
    """Sizes of a file at which the disk is full, spread over all that a run of the work writes."""
    return [int(at * 150_000 / count) for at in range(count)]


def full_disk(folder, limit, whole):
    written = set()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with Store(folder) as store:
            for name, record in expected().items():
                store.write(record)
                written.add(name)
            store.export()
    except BadFile:
        pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    survives(folder, written, whole)


@pytest.mark.parametrize("limit", limits(10))
def test_a_disk_that_is_full_loses_nothing(tmp_path, whole, limit):
    full_disk(tmp_path, limit, whole)


@pytest.mark.long
def test_a_disk_that_is_full_at_any_size_loses_nothing(tmp_path, whole):
    for limit in limits(600):
        full_disk(tmp_path / str(limit), limit, whole)
        shutil.rmtree(tmp_path / str(limit))


def work(folder, **variables):
    """Start a process that writes all records, says which are written, and exports them."""
    words = [sys.executable, str(WORK), str(folder), str(RECORDS)]
    return subprocess.Popen(words, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def killed(folder, whole, rng):
    """Kill the process at a random moment after its first record."""
    process = work(folder)
    first = process.stdout.readline()
    time.sleep(rng.uniform(0, 0.05))
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    survives(folder, set((first + rest).decode().split()) - {"exported"}, whole)


def test_a_killed_process_loses_nothing(tmp_path, whole):
    rng = random.Random(0)
    for number in range(2):
        killed(tmp_path / str(number), whole, rng)


@pytest.mark.long
def test_three_hundred_killed_processes_lose_nothing(tmp_path, whole):
    rng = random.Random(1)
    for number in range(300):
        killed(tmp_path / str(number), whole, rng)


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    if not shutil.which("cc") or sys.platform != "linux":
        pytest.skip("failing system calls are injected by a small C library: needs cc and Linux")
    library = tmp_path_factory.mktemp("shim") / "failing_io.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SHIM, "-ldl"], check=True)
    return str(library)


def failing(folder, shim, whole, at, error):
    """Let one call of the work fail; return whether the work made so many calls."""
    process = work(folder, LD_PRELOAD=shim, FAIL_AT=str(at), FAIL_WITH=str(error), FAIL_BELOW=str(folder))
    out, said = process.communicate()
    assert process.returncode in (0, 1), said.decode()[-2000:]
    if process.returncode:
        assert "BadFile" in said.decode(), "an error of the system is one message"
    survives(folder, set(out.decode().split()) - {"exported"}, whole)
    return b"FAILED" in said


def test_some_calls_of_the_system_that_fail_lose_nothing(tmp_path, shim, whole):
    for at in (2, 9, 30):
        assert failing(tmp_path / str(at), shim, whole, at, 28)  # no space left


@pytest.mark.long
@pytest.mark.parametrize("error", [5, 28], ids=["EIO", "ENOSPC"])
def test_every_call_of_the_system_that_fails_loses_nothing(tmp_path, shim, whole, error):
    at = 1
    while failing(tmp_path / str(at), shim, whole, at, error):
        shutil.rmtree(tmp_path / str(at))
        at += 1
    assert at > 40, "the calls of the database were not seen"


def race(folder, count, done):
    with Store(folder) as store:
        for name, record in expected(count).items():
            with store.claim(name) as own:
                if own and store.run(name) is None:
                    done.put(name)
                    store.write(record)


def raced(folder, count=6):
    done = SPAWN.SimpleQueue()
    racing = [SPAWN.Process(target=race, args=(folder, count, done)) for _ in range(2)]
    for process in racing:
        process.start()
    for process in racing:
        process.join()
        assert process.exitcode == 0
    names = []
    while not done.empty():
        names.append(done.get())
    assert sorted(names) == sorted(expected(count)), "each run is done once"


def test_two_processes_do_each_run_once(tmp_path):
    raced(tmp_path)


@pytest.mark.long
def test_a_hundred_races_of_two_processes_do_each_run_once(tmp_path):
    for number in range(100):
        raced(tmp_path / str(number))


def test_the_power_that_fails_between_two_writes_leaves_what_was_synchronized(tmp_path, whole):
    """What a file system may keep of a log that was not synchronized: any part of its end."""
    with Store(tmp_path / "full") as store:
        for record in expected().values():
            store.write(record)
        log = tmp_path / "full" / f"{DATABASE}-wal"
        content = log.read_bytes()
        database = (tmp_path / "full" / DATABASE).read_bytes()
    for cut in range(0, len(content), 9973):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / DATABASE).write_bytes(database)
        (folder / f"{DATABASE}-wal").write_bytes(content[:cut] + bytes(min(4096, len(content) - cut)))
        survives(folder, set(), whole)

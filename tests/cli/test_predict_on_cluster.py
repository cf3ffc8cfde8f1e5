"""`domainadaptor predict --engine ray` writes the table of one process, byte for byte, and resumes after a stop."""

import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from domainadaptor.lab.cluster.partial_table import partial_files
from tests.cli.test_predict import NAME, folder, predict, rows

__all__ = ["folder"]
HAS_RAY = pytest.mark.usefixtures("ray")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.fixture
def ray():
    pytest.importorskip("ray", reason="it needs the extra ray")


def start(images, *more):
    words = [sys.executable, "-m", "domainadaptor", "predict", NAME, str(images), "--weights", "w.safetensors"]
    words += ["--classes", "classes.txt", "--size", "64", "--batch-size", "3", *more]
    return subprocess.Popen(
        words, cwd=images.parent, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(images, *more, status=0):
    process = start(images, *more)
    said = process.communicate(timeout=500)[1]
    assert process.returncode == status, said
    return said


@HAS_RAY
def test_the_table_is_that_of_one_process(folder, tmp_path):
    (folder / "dog" / "broken.jpg").write_bytes(b"no image")
    run(folder, "--output", "one.csv", status=3)
    many = ("--engine", "ray", "--workers", "2", "--block-size", "2")
    run(folder, "--output", "many.csv", *many, status=3)
    assert (tmp_path / "many.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert not any(path.exists() for path in partial_files(tmp_path / "many.csv"))


@pytest.mark.slow
@HAS_RAY
@pytest.mark.parametrize("words", [("--stream-by", "folder"), ()])
def test_streams_are_those_of_one_process(folder, tmp_path, words):
    tent = ("--method", "tent", "--option", "lr=0.1", *words)
    run(folder, "--output", "one.csv", *tent, status=5)
    said = run(folder, "--output", "many.csv", *tent, "--engine", "ray", "--workers", "2", status=5)
    assert ("each folder is a stream" if words else "all images are one stream") in said
    assert (tmp_path / "many.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()


def wait_for_batches(path, count):
    """Wait until some batches are finished; return nothing."""
    until = time.monotonic() + 400
    while time.monotonic() < until:
        wal = path.with_name(f"{path.name}-wal")
        if wal.exists() and wal.stat().st_size > 40_000 + 4_000 * count:
            return
        time.sleep(0.05)
    raise AssertionError("no batch was finished in time")


@pytest.mark.slow
@HAS_RAY
def test_finished_batches_are_not_repeated_after_a_kill(folder, tmp_path):
    image = (folder / "cat" / "0.jpg").read_bytes()
    for at in range(300):
        (folder / "cat" / f"more-{at:03}.jpg").write_bytes(image)
    run(folder, "--output", "one.csv")
    process = start(folder, "--output", "many.csv", "--engine", "ray", "--workers", "1")
    partial = partial_files(tmp_path / "many.csv")[0]
    wait_for_batches(partial, 3)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with sqlite3.connect(partial) as db:  # a mark that only the finished batches have
        (finished,) = db.execute("SELECT count(*) FROM rows").fetchone()
        db.execute("UPDATE rows SET source_prediction = 'kept'")
    db.close()
    assert 0 < finished < 310
    run(folder, "--output", "many.csv", "--engine", "ray", "--workers", "2")
    one, many = rows(tmp_path / "one.csv"), rows(tmp_path / "many.csv")
    assert sum(row["source_prediction"] == "kept" for row in many) == finished
    for row, expected in zip(many, one, strict=True):
        assert row | {"source_prediction": ""} == expected | {"source_prediction": ""}


def test_options_without_effect_are_refused(program, folder, tmp_path):
    for words, hint in [
        (("--workers", "2"), "--workers is for --engine ray"),
        (("--address", "auto"), "--address is for --engine ray"),
        (("--block-size", "2"), "--block-size is for --engine ray"),
        (("--engine", "dask"), "expected process or ray"),
        (("--stream-by", "folder"), "domainadaptor-t keeps nothing between batches"),
        (("--method", "tent", "--stream-by", tmp_path), "or a folder in it"),
    ]:
        done = predict(program, folder, *words)
        assert done.returncode == 1
        assert hint in done.stderr, done.stderr
        assert not (tmp_path / "out.csv").exists()


def test_streams_by_folder_do_not_see_each_other(program, folder, tmp_path):
    tent = ("--method", "tent", "--option", "lr=0.1")
    predict(program, folder, *tent, "--stream-by", folder)
    streams = rows(tmp_path / "out.csv")
    predict(program, folder, *tent)
    assert rows(tmp_path / "out.csv") != streams
    for kind in ("cat", "dog"):
        predict(program, folder / kind, *tent)
        alone = {f"{kind}/{row['file']}": row["adapted_confidence"] for row in rows(tmp_path / "out.csv")}
        assert alone == {row["file"]: row["adapted_confidence"] for row in streams if row["file"].startswith(kind)}


def test_a_parquet_table_has_the_same_rows(program, folder, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="it needs the extra ray")
    predict(program, folder)
    predict(program, folder, "--output", "out.parquet")
    known = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [{name: str(value) for name, value in row.items()} for row in known] == rows(tmp_path / "out.csv")

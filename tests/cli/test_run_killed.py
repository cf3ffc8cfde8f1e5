"""`domainadaptor run` killed at random moments, and two of them at once: each run is recorded once, with one result."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.small_experiment import OWN, arguments, records

BATCHES = ("--checkpoint", OWN[1], "--no-cache")
KILLS = 300


def start(base, folder):
    words = [sys.executable, "-m", "domainadaptor", *arguments(base, *BATCHES), "--output", str(folder), "--export"]
    return subprocess.Popen(words, cwd=base, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(base, folder):
    """Run to the end; return the tables and the scores."""
    process = start(base, folder)
    out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    (base / "results").symlink_to(folder)
    found = {name: record.scores for name, record in records(base).items()}
    (base / "results").unlink()
    return out.partition("Records are in")[0], found


def survives(base, kills, seed):
    begun = time.monotonic()
    whole = result(base, base / "whole")
    took = time.monotonic() - begun
    rng, folder = random.Random(seed), base / "killed"
    for number in range(kills):
        if number % 6 == 0:  # some kills meet what earlier ones left
            shutil.rmtree(folder, ignore_errors=True)
        process = start(base, folder)
        time.sleep(rng.uniform(0, 1.1 * took))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if number % 6 == 5 or number == kills - 1:
            assert result(base, folder) == whole


@pytest.mark.slow
def test_a_killed_command_is_repeated_without_a_loss(base):
    survives(base, 1, seed=0)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_three_hundred_killed_commands_are_repeated_without_a_loss(base):
    survives(base, KILLS, seed=1)


@pytest.mark.slow
def test_two_commands_at_once_share_the_runs(base):
    both = [start(base, base / "shared") for _ in range(2)]
    said = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    done = [line for text in said for line in text.splitlines() if line.startswith("[")]
    assert len(done) == 2, "each run is done by one of them"
    os.symlink(base / "shared", base / "results")
    assert len(records(base)) == 2

import itertools
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import torch

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.prefetch import prefetch


def test_prefetch_gives_the_same_items():
    assert list(prefetch(range(5))) == [0, 1, 2, 3, 4]
    assert list(prefetch([])) == []
    assert list(prefetch([None, False])) == [None, False]


def test_prefetch_is_one_item_ahead():
    made = []

    def items():
        for number in range(5):
            made.append(number)
            yield number

    stream = prefetch(items())
    assert next(stream) == 0
    deadline = time.monotonic() + 10
    while made != [0, 1] and time.monotonic() < deadline:
        time.sleep(0.001)
    assert made == [0, 1]
    stream.close()


def test_prefetch_passes_errors_on_after_the_items_before_them():
    def items():
        yield 1
        raise BadFile("the second")

    stream = prefetch(items())
    assert next(stream) == 1
    with pytest.raises(BadFile, match="the second"):
        next(stream)


def test_prefetch_can_be_left_early():
    threads = threading.active_count()
    for item in prefetch(itertools.count()):
        if item == 3:
            break
    stream = prefetch(itertools.count())
    next(stream)
    stream.close()
    del stream
    deadline = time.monotonic() + 10
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.001)
    assert threading.active_count() == threads


def test_prefetch_leaves_the_processors_to_the_network():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        while_loading = list(prefetch(torch.get_num_threads() for _ in range(2)))
        later: list[int] = []
        other = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        other.start()
        other.join()
        assert (while_loading, torch.get_num_threads(), later) == ([1, 1], 3, [3])
    finally:
        torch.set_num_threads(threads)


def test_the_worker_starts_no_threads():
    # In a process of its own: OpenMP keeps the threads it once started.
    script = """
        import os, torch
        from domainadaptor.lab.data.prefetch import prefetch
        torch.set_num_threads(2)
        torch.ones(1 << 20).add_(1)
        before = len(os.listdir("/proc/self/task"))
        stream = prefetch(torch.ones(1 << 20) + 1 for _ in range(9))
        next(stream)
        next(stream)
        print(len(os.listdir("/proc/self/task")) - before)
    """
    if not Path("/proc/self/task").is_dir():
        pytest.skip("counts threads where Linux lists them")
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "1"

"""With `keep_freed_memory`, the memory that one batch freed serves the next one."""

import os
import platform
import subprocess
import sys

import pytest

# Pages that the system had to hand out for the first backward pass and for later ones, and the memory that is returned.
SCRIPT = """
import ctypes, resource, statistics, mmap
from domainadaptor.lab.allocator import keep_freed_memory, release_freed_memory
keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [libc.malloc(8 << 20) for _ in range(8)]
    for block in blocks:
        ctypes.memset(block, 1, 8 << 20)
    for block in blocks:
        libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * mmap.PAGESIZE
first, *later = [pages() for _ in range(4)]
held = resident()
release_freed_memory()
print(first, statistics.median(later), held - resident())
"""


def measured(**environment):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return [float(word) for word in done.stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library supports it")
def test_the_next_batch_reuses_what_the_last_one_freed():
    first, later, released = measured()
    assert later < first / 20
    assert released > 50e6
    _, without, _ = measured(DOMAINADAPTOR_KEEP_MEMORY="0")
    assert without > first / 2

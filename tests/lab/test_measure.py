"""Peak memory is measured above the start, and the highest peak counts."""

import subprocess
import sys

import pytest

# In a process of its own: commands that other tests run make their process keep freed memory.
CODE = """
import torch
from domainadaptor.lab.measure import PeakMemory, available_memory, used_memory

before = used_memory()
held = torch.ones(25_000_000)
print(used_memory() - before, held.nbytes, available_memory("cpu"))
memory = PeakMemory("cpu")
print(memory.megabytes())
for megabytes in (5, 80, 20):
    with memory.measured():
        torch.ones(megabytes * 250_000)  # floats of four bytes
print(memory.megabytes())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can reset the peak")
def test_used_memory_and_the_highest_of_several_peaks():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    sizes, first, highest = done.stdout.splitlines()
    used, held, available = map(float, sizes.split())
    assert used == pytest.approx(held, rel=0.3)
    assert available > 1e6
    assert first == "None"
    assert float(highest) == pytest.approx(80, abs=15)

"""Peak memory is measured above the start, and the highest peak counts."""

import sys

import pytest
import torch

from domainadaptor.lab.measure import PeakMemory, available_memory, used_memory


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can reset the peak")
def test_the_highest_of_several_peaks_counts():
    memory = PeakMemory("cpu")
    assert memory.megabytes() is None
    for megabytes in (5, 80, 20):
        with memory.measured():
            torch.ones(megabytes * 250_000)  # floats of four bytes
    assert memory.megabytes() == pytest.approx(80, abs=15)


def test_used_and_available_memory_are_in_bytes():
    before = used_memory()
    held = torch.ones(25_000_000)
    assert used_memory() - before == pytest.approx(held.nbytes, rel=0.3)
    assert available_memory("cpu") > 1e6

"""What a batch freed is kept for the next one, and given back at the end."""

import os
import platform
import subprocess
import sys

import pytest

# Pages that the system had to hand out for the first batch and for a usual one after it (now and then one more block is
# taken, as the threads of forward and backward happen to meet), and what is left once the adaptor is gone.
SCRIPT = """
import gc, resource, statistics, torch
from torch import nn
import domainadaptor as da
from domainadaptor.lab.peak_memory import in_use
torch.set_num_threads(1)
network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()
adaptor = da.adapt(network, "domainadaptor-t")
images = torch.randn(16, 3, 256, 256)
faults = []
for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    adaptor(images)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
held = in_use()
del adaptor
gc.collect()
print(faults[0], statistics.median(faults[1:]), held, in_use())
"""


def measured(**environment):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return [float(word) for word in done.stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library can be told")
def test_the_next_batch_finds_what_the_last_one_freed():
    first, later, held, after = measured()
    assert later < first / 20
    assert held - after > 50e6  # activations of 16 images: 8 x 254 x 254 floats, several times
    _, without, _, _ = measured(DOMAINADAPTOR_KEEP_MEMORY="0")
    assert without > first / 2

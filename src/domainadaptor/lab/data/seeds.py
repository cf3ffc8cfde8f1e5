"""Seeds that are derived from several numbers or from a name."""

import zlib

import numpy as np


def derived_seed(*numbers: int) -> int:
    """Return a seed that depends on all of the numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def name_seed(name: str) -> int:
    """Return a seed for a name: the same in every process, unlike `hash`; file names need not be valid text."""
    return zlib.crc32(name.encode(errors="surrogateescape"))

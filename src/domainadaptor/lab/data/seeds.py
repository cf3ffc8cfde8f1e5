"""One seed from several numbers."""

import numpy as np


def derived_seed(*numbers: int) -> int:
    """A seed that follows from all of the numbers, and differs where one of them does."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))

"""Computing the next item in a thread while the current one is used."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def prefetch(items: Iterable[T]) -> Iterator[T]:
    """Yield the same items, computing the next one in a thread while the current one is used."""
    iterator = iter(items)
    end = object()
    with ThreadPoolExecutor(max_workers=1) as pool:
        _limit_to_one_thread(pool)
        waiting = pool.submit(next, iterator, end)
        while (item := waiting.result()) is not end:
            waiting = pool.submit(next, iterator, end)
            yield item  # type: ignore[misc]


def _limit_to_one_thread(pool: ThreadPoolExecutor) -> None:
    """Let the pool's worker compute without OpenMP threads; the number of this thread stays.

    Together with the threads of the network they would be more than there are cores. They would wait for each other,
    and adaptation would take twice as long.
    """

    def limit() -> None:
        torch.get_num_threads()  # initializes the setting of this thread, which the first operation would overwrite
        torch.set_num_threads(1)

    threads = torch.get_num_threads()
    pool.submit(limit).result()
    torch.set_num_threads(threads)  # threads that start later take the last number that was set

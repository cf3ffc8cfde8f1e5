"""Finding the images of a domain that cannot be read."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain

_CHUNK = 256  # images per round, which bounds the memory


def unreadable_images(domain: Domain, decode: bool, advance: Callable[[int], None]) -> dict[str, str]:
    """Return image -> why it cannot be read.

    Args:
        domain: The domain to check.
        decode: Decode images completely, which also finds truncated files; otherwise only headers are read.
        advance: Called with the number of images that were checked since the last call.
    """

    def problem(name: str) -> str | None:
        try:
            domain.read(name) if decode else domain.read.check(name)
        except BadFile as error:
            return str(error)
        return None

    found: dict[str, str] = {}
    names = [example.name for example in domain.examples]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for start in range(0, len(names), _CHUNK):
            chunk = names[start : start + _CHUNK]
            found |= {name: why for name, why in zip(chunk, pool.map(problem, chunk), strict=True) if why}
            advance(len(chunk))
    return found

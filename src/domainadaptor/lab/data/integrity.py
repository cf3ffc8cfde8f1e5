"""Which images of a domain cannot be read, and why."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain

_CHUNK = 256  # images that are looked at before the next ones are begun: what bounds the memory


def damaged(domain: Domain, decode: bool, step: Callable[[int], None]) -> dict[str, str]:
    """Image -> why it cannot be read.

    Args:
        domain: Whose images are looked at.
        decode: Read them whole, which also finds files that break off; their headers otherwise.
        step: Told how many more images were looked at.
    """
    found: dict[str, str] = {}
    look = domain.read if decode else domain.read.check
    names = [example.name for example in domain.examples]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for start in range(0, len(names), _CHUNK):
            chunk = names[start : start + _CHUNK]
            reasons = pool.map(lambda name: _reason(look, name), chunk)
            found |= {name: why for name, why in zip(chunk, reasons, strict=True) if why}
            step(len(chunk))
    return found


def _reason(look: Callable[[str], object], name: str) -> str | None:
    try:
        look(name)
    except BadFile as error:
        return str(error)
    return None

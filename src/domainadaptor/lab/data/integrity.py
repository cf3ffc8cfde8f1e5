"""Finding the images of a data set that cannot be decoded."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain, DomainDataset


def unreadable_images(dataset: DomainDataset, progress: Callable[[int], None]) -> dict[str, str]:
    """Return domain/image -> why it cannot be decoded."""

    def problem(job: tuple[Domain, str]) -> str:
        try:
            job[0].read(job[1])
        except BadFile as error:
            return str(error)
        return ""

    jobs = [(domain, example.name) for domain in dataset.domains.values() for example in domain.examples]
    found: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for done, ((domain, name), why) in enumerate(zip(jobs, pool.map(problem, jobs), strict=True), start=1):
            if why:
                found[f"{domain.name}/{name}"] = why
            progress(done)
    return found

"""Data sets by name."""

import sys
from collections.abc import Callable
from pathlib import Path

from domainadaptor import registry
from domainadaptor.catalog import describe
from domainadaptor.errors import BadOption
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.options import coerce_options, defaults_of

_SETS = "domainadaptor.lab.data.sets"


def open_dataset(name: str, root: Path | None = None, /, **options: object) -> DomainDataset:
    """Open the data set of that name below a root folder."""
    function = find_dataset(name)
    opened = function(root, **coerce_options(function, options, name))
    assert isinstance(opened, DomainDataset)
    return opened


def find_dataset(name: str) -> Callable[..., DomainDataset]:
    """Return the function that opens a data set; its keyword-only parameters are the options."""
    return registry.find(_SETS, "data set", name)


def datasets() -> dict[str, str]:
    """Return every data set, name -> one sentence."""
    return {name: info.summary for name, info in describe(_SETS).items()}


def data_options(name: str) -> dict[str, object]:
    """Return the options of a data set with their defaults."""
    return defaults_of(find_dataset(name))


def published_images(name: str) -> dict[str, int]:
    """Return the published number of images per domain; empty for data sets such as a user's folders."""
    function = find_dataset(name)
    return dict(getattr(sys.modules[function.__module__], "IMAGES", {}))


def source_of(name: str) -> str:
    """Return where the authors publish a data set and how it is unpacked."""
    text = getattr(sys.modules[find_dataset(name).__module__], "SOURCE", "")
    if not text:
        raise BadOption(f"{name} is not a published data set: `domainadaptor data list` says what it reads")
    return str(text)


def differs_from_published(name: str, dataset: DomainDataset) -> str:
    """Describe the domains whose number of images differs from the published data set; "" if there are none."""
    numbers = published_images(name)
    other = [
        f"{domain.name} {len(domain.examples):,} of {numbers[domain.name]:,}"
        for domain in dataset.domains.values()
        if domain.name in numbers and len(domain.examples) != numbers[domain.name]
    ]
    return f"numbers of images differ from the published {name}: {', '.join(other)}" if other else ""

"""Data sets by name."""

import sys
from pathlib import Path

from domainadaptor import registry
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.options import coerce_options, defaults_of

_SETS = "domainadaptor.lab.data.sets"


def open_dataset(name: str, root: Path | None = None, /, **options: object) -> DomainDataset:
    """The data set of that name, below a root folder.

    Raises:
        BadOption: There is no such data set or option.
        BadFile: It is not there, or not as expected.
    """
    function = registry.find(_SETS, "data set", name)
    opened = function(root, **coerce_options(function, options, name))
    assert isinstance(opened, DomainDataset)
    return opened


def datasets() -> dict[str, str]:
    """Every data set, name -> one sentence."""
    return {name: registry.sentence(function) for name, function in registry.table(_SETS).items()}


def data_options(name: str) -> dict[str, object]:
    """The options of a data set with their defaults.

    Raises:
        BadOption: There is no such data set.
    """
    return defaults_of(registry.find(_SETS, "data set", name))


def published_images(name: str) -> dict[str, int]:
    """Images of each domain as the data set was published; empty where nothing was, as for a user's folders.

    Raises:
        BadOption: There is no such data set.
    """
    function = registry.find(_SETS, "data set", name)
    return dict(getattr(sys.modules[function.__module__], "IMAGES", {}))


def differs_from_published(name: str, dataset: DomainDataset) -> str:
    """Which domains of a data set, opened by its name, have another number of images than was published, in words."""
    numbers = published_images(name)
    other = [
        f"{own} {len(domain.examples):,} of {numbers[own]:,}"
        for own, domain in dataset.domains.items()
        if own in numbers and len(domain.examples) != numbers[own]
    ]
    return f"not as many images of {name} as were published: {', '.join(other)}" if other else ""

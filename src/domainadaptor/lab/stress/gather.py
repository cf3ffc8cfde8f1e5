"""From a data set to what a stress test needs: images for streams, and a fixed probe."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.corrupted import CorruptedReader, FittedReader
from domainadaptor.lab.data.domains import Domain, DomainDataset
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.seeds import derived_seed
from domainadaptor.lab.stress.streams import Labeled, Pool

_HOME, _OTHER = 2000, 256  # images of the one domain, and of each other
_CORRUPTIONS = ("gaussian_noise", "motion_blur", "fog", "contrast")  # one of each family
_SEVERITY = 5
_SMALL = 64  # sides up to this get the corruptions of CIFAR-10-C


def gather(
    dataset: DomainDataset,
    home: str,
    classes: Sequence[str],
    preprocessing: Preprocessing,
    *,
    probe: int,
    seed: int,
) -> tuple[Pool, Labeled, list[str]]:
    """Images for streams, other images of one domain to probe with, and what must be said of them.

    Args:
        dataset: Where they come from. If it has one domain only, corrupted copies of its images are the others.
        home: The domain that is probed, one that the network knows; of images that are not for training.
        classes: The network's.
        preprocessing: The network's.
        probe: How many images to probe with.
        seed: Of the choice.

    Raises:
        BadOption: The classes are others, or there is no such domain.
        BadFile: There are not enough images.
    """
    labels = _labels(dataset, classes)
    domain = dataset.domain(home)
    order = torch.randperm(len(domain.examples), generator=torch.Generator().manual_seed(seed)).tolist()
    unseen = [at for at in order if domain.examples[at].split != "train"]
    chosen = unseen[:probe]  # shuffled: batches of one class would be a test of their own
    probed = set(chosen)
    rest = [at for at in order if at not in probed]
    if not chosen or not rest:
        raise BadFile(
            f"{dataset.name}, domain {home!r}: expected images that were not trained on to probe with, and others to "
            f"make streams of, got {len(unseen)} of {len(order)} that are not for training; choose another --domain"
        )
    notes = []
    if len(chosen) < probe:
        notes.append(f"the probe has {len(chosen)} images: {home} has no more that are not for training")
    found = {home: _take(domain, rest[:_HOME], labels, preprocessing)}
    for number, (name, other) in enumerate(_others(dataset, domain, preprocessing, seed).items()):
        draw = torch.Generator().manual_seed(derived_seed(seed, number))
        positions = torch.randperm(len(other.examples), generator=draw).tolist()
        if len(dataset.domains) == 1:
            positions = [at for at in positions if at not in probed]
        found[name] = _take(other, positions[:_OTHER], labels, preprocessing)
    asked = _take(domain, chosen, labels, preprocessing)
    return Pool(found, home, preprocessing.normalized), asked, notes


def _labels(dataset: DomainDataset, classes: Sequence[str]) -> list[int]:
    """The network's number for each class of the data set."""
    if set(classes) == set(dataset.classes):
        return [list(classes).index(name) for name in dataset.classes]
    if list(classes) == [str(number) for number in range(len(dataset.classes))]:  # a network that has no names
        return list(range(len(dataset.classes)))
    raise BadOption(
        f"the network tells {len(classes)} classes apart ({', '.join(classes[:3])} …), {dataset.name} has "
        f"{len(dataset.classes)} ({', '.join(dataset.classes[:3])} …): give a network trained for this data set"
    )


def _others(dataset: DomainDataset, domain: Domain, preprocessing: Preprocessing, seed: int) -> Mapping[str, Domain]:
    if len(dataset.domains) > 1:
        return {name: dataset.domains[name] for name in dataset.others(domain.name)}
    constants: Literal["cifar", "imagenet"] = "cifar" if preprocessing.size <= _SMALL else "imagenet"
    fitted = FittedReader(domain.read, preprocessing)
    return {
        name: replace(domain, name=name, read=CorruptedReader(fitted, name, _SEVERITY, constants, seed))
        for name in _CORRUPTIONS
    }


def _take(domain: Domain, positions: Sequence[int], labels: Sequence[int], preprocessing: Preprocessing) -> Labeled:
    pixels, there = DomainImages(domain, preprocessing).take(positions)
    if not there:
        raise BadFile(f"none of {len(positions)} images of domain {domain.name!r} can be read")
    return Labeled(preprocessing.normalized(pixels), torch.tensor([labels[domain.examples[at].label] for at in there]))

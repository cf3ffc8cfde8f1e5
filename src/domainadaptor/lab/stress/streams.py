"""Streams of batches that mislead adaptation, ordinary ones for comparison, and a fixed probe."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.domains import Domain, DomainDataset
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.seeds import derived_seed
from domainadaptor.options import check_choice

HOSTILE = ("one-class", "sorted", "noise", "constant", "alternating", "tiny")
ORDINARY = ("shuffled", "domains")
KINDS = (*HOSTILE, *ORDINARY)

_MAIN, _OTHER = 2000, 256  # images of the main domain, and of each other domain


class LabeledImages(NamedTuple):
    """Normalized images and their labels."""

    images: Tensor  # (N, C, H, W)
    labels: Tensor  # (N,)


@dataclass(frozen=True)
class StreamImages:
    """The images that streams consist of."""

    domains: Mapping[str, LabeledImages]
    main: str  # streams of a single domain draw from this one
    normalized: Callable[[Tensor], Tensor]  # from values between 0 and 1 to the network's input

    def of_main(self) -> LabeledImages:
        """Return the images of the main domain."""
        return self.domains[self.main]


def stream(kind: str, source: StreamImages, *, batches: int, batch_size: int, seed: int) -> Iterator[Tensor]:
    """Yield batches of a kind; each one depends on the seed and its number."""
    check_choice("kind", kind, KINDS)
    images, labels = source.of_main()
    domains = [found.images for found in source.domains.values()]
    classes = sorted(set(labels.tolist()))
    number = KINDS.index(kind)
    first = torch.Generator().manual_seed(derived_seed(seed, number))
    one = classes[int(torch.randint(len(classes), (), generator=first))]
    for at in range(batches):
        generator = torch.Generator().manual_seed(derived_seed(seed, number, at))
        if kind == "noise":
            yield source.normalized(torch.rand(batch_size, *images.shape[1:], generator=generator))
            continue
        if kind == "constant":  # a lens cap: one color per batch
            color = torch.rand(1, images.shape[1], 1, 1, generator=generator)
            yield source.normalized(color.expand(batch_size, *images.shape[1:]))
            continue
        match kind:
            case "one-class":
                pool = images[labels == one]
            case "sorted":
                pool = images[labels == classes[at * len(classes) // batches]]
            case "alternating":
                pool = domains[at % len(domains)]
            case "domains":
                pool = domains[at * len(domains) // batches]
            case _:
                pool = images
        size = 1 + at % 2 if kind == "tiny" else batch_size
        yield pool[torch.randint(len(pool), (size,), generator=generator)]


def sample(
    dataset: DomainDataset, main: str, classes: Sequence[str], preprocessing: Preprocessing, *, probe: int, seed: int
) -> tuple[StreamImages, LabeledImages, list[str]]:
    """Return images for streams, other images of the main domain as a probe, and notes.

    The probe has no training images.
    """
    labels = _labels(dataset, classes)
    domain = dataset.domain(main)
    order = torch.randperm(len(domain.examples), generator=torch.Generator().manual_seed(seed)).tolist()
    unseen = [at for at in order if domain.examples[at].split != "train"]
    chosen = unseen[:probe]  # shuffled: batches of a single class would be another test
    probed = set(chosen)
    rest = [at for at in order if at not in probed]
    if not chosen or not rest:
        raise BadFile(
            f"{dataset.name}, domain {main!r}: expected images outside the training split for the probe, and others "
            f"for streams, got {len(unseen)} of {len(order)} outside the training split; choose another --domain"
        )
    count = f"{len(chosen)} image{'' if len(chosen) == 1 else 's'}"
    notes = [f"the probe has {count}: {main} has no more outside the training split"] * (len(chosen) < probe)
    if len(dataset.domains) == 1:
        notes.append(f"{dataset.name} has a single domain, so the streams alternating and domains are shuffled ones")
    found = {main: _take(domain, rest[:_MAIN], labels, preprocessing)}
    for number, name in enumerate(dataset.others(main)):
        generator = torch.Generator().manual_seed(derived_seed(seed, number))
        positions = torch.randperm(len(dataset.domains[name].examples), generator=generator).tolist()
        found[name] = _take(dataset.domains[name], positions[:_OTHER], labels, preprocessing)
    return StreamImages(found, main, preprocessing.normalized), _take(domain, chosen, labels, preprocessing), notes


def _labels(dataset: DomainDataset, classes: Sequence[str]) -> list[int]:
    """Return the network's label for each class of the data set."""
    if set(classes) == set(dataset.classes):
        return [list(classes).index(name) for name in dataset.classes]
    if list(classes) == [str(number) for number in range(len(dataset.classes))]:  # a network without class names
        return list(range(len(dataset.classes)))
    raise BadOption(
        f"The network has {len(classes)} classes ({', '.join(classes[:3])} …), {dataset.name} has "
        f"{len(dataset.classes)} ({', '.join(dataset.classes[:3])} …); use a network trained for this data set"
    )


def _take(
    domain: Domain, positions: Sequence[int], labels: Sequence[int], preprocessing: Preprocessing
) -> LabeledImages:
    pixels, there = DomainImages(domain, preprocessing).take(positions)
    if not there:
        raise BadFile(f"None of {len(positions)} images of domain {domain.name!r} can be read")
    own = torch.tensor([labels[domain.examples[at].label] for at in there])
    return LabeledImages(preprocessing.normalized(pixels), own)

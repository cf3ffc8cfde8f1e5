"""Labeled images in several domains: the data set interface that the rest of the lab uses."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from PIL import Image

from domainadaptor.errors import BadOption
from domainadaptor.lab.data.locate import fold, some
from domainadaptor.options import suggestion

Split = Literal["train", "val", "test"]


class Example(NamedTuple):
    """A labeled image; the reader of its domain finds it by name."""

    name: str  # unique in its domain
    label: int
    split: Split  # "test": used neither for training nor for model selection


class Reader(ABC):
    """Reads the images of one domain; picklable and thread-safe."""

    @abstractmethod
    def __call__(self, name: str) -> Image.Image:
        """Return the image as RGB; raise BadFile if it cannot be read."""

    @abstractmethod
    def stamp(self, name: str) -> str:
        """Return a string that changes when the image does."""

    def mark(self, name: str) -> str:
        """Return a string that usually differs between images and does not depend on where the data set is stored."""
        return self.stamp(name)


@dataclass(frozen=True)
class Domain:
    """Images that share an origin: a style, a camera, a hospital."""

    name: str
    examples: tuple[Example, ...]
    read: Reader
    tested: Literal["all", "val"] = "all"  # the images to test on when the domain is held out

    def select(self, split: Split) -> list[Example]:
        """Return the training images, the validation images, or those to test on when the domain is held out."""
        wanted = self.tested if split == "test" else split
        return [example for example in self.examples if wanted in ("all", example.split)]

    def split_counts(self) -> dict[str, int]:
        """Return split -> number of images."""
        return dict(Counter(example.split for example in self.examples))


@dataclass(frozen=True)
class DomainDataset:
    """A classification task in several domains."""

    name: str
    classes: tuple[str, ...]
    domains: Mapping[str, Domain]
    splits: str  # where the split into training and validation images comes from, in words
    skipped: Mapping[str, str] = field(default_factory=dict)  # file -> why it is not an example

    def __len__(self) -> int:
        return sum(len(domain.examples) for domain in self.domains.values())

    def domain(self, name: str) -> Domain:
        """Return the domain of that name."""
        if name not in self.domains:
            raise BadOption(f"{self.name} has no domain {name!r}; {suggestion(name, self.domains)}")
        return self.domains[name]

    def others(self, name: str) -> list[str]:
        """Return the names of all domains but one."""
        self.domain(name)
        return [other for other in self.domains if other != name]

    def with_classes(self, classes: Sequence[str]) -> "DomainDataset":
        """Return the same with labels that index other classes: all of its own, in any order and spelling, and more."""
        if self.classes == tuple(classes):
            return self
        known = {fold(name): label for label, name in enumerate(classes)}
        known |= {name: label for label, name in enumerate(classes)}
        labels = [known.get(name, known.get(fold(name), -1)) for name in self.classes]
        if unknown := [name for name, label in zip(self.classes, labels, strict=True) if label < 0]:
            raise BadOption(
                f"{self.name}: the network does not predict {some(unknown)}; it predicts {some(classes)}. Name class "
                "folders like the network's classes, or train a network on these"
            )

        def relabeled(domain: Domain) -> Domain:
            examples = (example._replace(label=labels[example.label]) for example in domain.examples)
            return replace(domain, examples=tuple(examples))

        return replace(self, classes=tuple(classes), domains={n: relabeled(d) for n, d in self.domains.items()})

    def fingerprint(self) -> str:
        """Return a hash of classes, domains, labels, split and images that does not depend on where they are stored.

        Compressed images are identified by their size: replacing one by another of the same size goes unnoticed.
        """
        digest = hashlib.sha256(json.dumps(self.classes).encode())
        for domain in self.domains.values():
            marks = [domain.read.mark(example.name) for example in domain.examples]
            digest.update(json.dumps([domain.name, domain.tested, domain.examples, marks]).encode())
        return digest.hexdigest()[:12]

    def manifest(self) -> dict[str, Any]:
        """Return the content for records: images per domain, class and split, a hash of each domain, skipped files."""
        domains, counts = {}, self.counts()
        for name, domain in self.domains.items():
            marks = [[*example, domain.read.mark(example.name)] for example in domain.examples]
            domains[name] = {
                "images": len(domain.examples),
                "classes": counts[name],
                "parts": domain.split_counts(),
                "tested": domain.tested,
                "sha256": hashlib.sha256(json.dumps(marks).encode()).hexdigest(),
            }
        return {
            "name": self.name,
            "fingerprint": self.fingerprint(),
            "splits": self.splits,
            "domains": domains,
            "skipped": dict(self.skipped),
        }

    def counts(self) -> dict[str, dict[str, int]]:
        """Return domain -> class -> number of images."""
        counted = {name: Counter(e.label for e in domain.examples) for name, domain in self.domains.items()}
        return {name: {kind: own[label] for label, kind in enumerate(self.classes)} for name, own in counted.items()}

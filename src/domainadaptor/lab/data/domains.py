"""Labeled images in several domains: what a data set is to the rest of the library."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from PIL import Image

from domainadaptor.errors import BadOption
from domainadaptor.options import suggestion

Split = Literal["train", "val", "test"]
Tested = Literal["all", "val", "test"]


class Example(NamedTuple):
    """One labeled image, by name; its domain's reader knows where it is."""

    name: str  # unique in its domain
    label: int
    split: Split  # "test": neither trained on nor used to choose weights


class Reader(Protocol):
    """Reads the images of one domain; picklable, and safe to call from several threads."""

    def __call__(self, name: str) -> Image.Image:
        """The image as RGB; raises BadFile if it cannot be read."""

    def check(self, name: str) -> None:
        """Looks at the image without decoding it; raises BadFile if that shows that it cannot be read."""

    def stamp(self, name: str) -> str:
        """Something that changes when the image does."""

    def mark(self, name: str) -> str:
        """Something that mostly differs between images and is the same wherever they lie."""


@dataclass(frozen=True)
class Domain:
    """Where images come from: a style, a camera, a hospital."""

    name: str
    examples: tuple[Example, ...]
    read: Reader
    tested: Tested = "all"  # what a network is tested on that never saw this domain

    def select(self, part: Split) -> list[Example]:
        """Its training images, its validation images, or those to test on when the domain was left out of training."""
        wanted = self.tested if part == "test" else part
        return [example for example in self.examples if wanted in ("all", example.split)]


@dataclass(frozen=True)
class DomainDataset:
    """A classification task in several domains."""

    name: str
    classes: tuple[str, ...]
    domains: Mapping[str, Domain]
    splits: str  # where the split into training and validation images comes from, in words
    skipped: Mapping[str, str] = field(default_factory=dict)  # file -> why it is no example

    def domain(self, name: str) -> Domain:
        """The domain of that name.

        Raises:
            BadOption: There is none.
        """
        if name not in self.domains:
            raise BadOption(f"{self.name} has no domain {name!r}; {suggestion(name, self.domains)}")
        return self.domains[name]

    def others(self, name: str) -> list[str]:
        """All domains but one."""
        self.domain(name)
        return [other for other in self.domains if other != name]

    def fingerprint(self) -> str:
        """Differs where classes, domains, labels, the split or the images do; not where the same data lie elsewhere.

        Compressed images are known by their size: one that is replaced by another of as many bytes is not noticed.
        """
        digest = hashlib.sha256(json.dumps(self.classes).encode())
        for domain in self.domains.values():
            marks = [domain.read.mark(example.name) for example in domain.examples]
            digest.update(json.dumps([domain.name, domain.tested, domain.examples, marks]).encode())
        return digest.hexdigest()[:12]

    def manifest(self) -> dict[str, Any]:
        """What there is, for the records: images of each domain, class and part, a digest of each, what was skipped."""
        domains = {}
        for name, domain in self.domains.items():
            marks = [[*example, domain.read.mark(example.name)] for example in domain.examples]
            domains[name] = {
                "images": len(domain.examples),
                "classes": _per_class(domain.examples, self.classes),
                "parts": dict(Counter(example.split for example in domain.examples)),
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
        """Domain -> class -> how many images."""
        return {name: _per_class(domain.examples, self.classes) for name, domain in self.domains.items()}


def _per_class(examples: Iterable[Example], classes: tuple[str, ...]) -> dict[str, int]:
    counted = [0] * len(classes)
    for example in examples:
        counted[example.label] += 1
    return dict(zip(classes, counted, strict=True))

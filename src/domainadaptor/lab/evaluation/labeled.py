"""Labeled images as users have them: folders, data sets and loaders, by domain, in batches."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.domains import Domain, DomainDataset
from domainadaptor.lab.data.prefetch import prefetch
from domainadaptor.lab.data.registry import datasets, open_dataset

Transform: TypeAlias = Callable[[Image.Image], Tensor]


@dataclass(frozen=True)
class Labeled:
    """The labeled images of one domain."""

    batches: Iterable[Any]  # of (images, labels)
    classes: tuple[str, ...] = ()  # names of the labels, where they are known
    skipped: dict[str, str] = field(default_factory=dict)  # file -> why; complete after all batches


def labeled_domains(data: Any, transform: Transform | None, batch_size: int, seed: int) -> dict[str, Labeled]:
    """Return the batches of each domain; a data set or loader without domains is one without a name."""
    if isinstance(data, str | Path):
        data = _opened(data)
    if isinstance(data, DomainDataset):
        if transform is None:
            raise BadOption(_NO_TRANSFORM)
        return {
            name: _of_files(domain, data.classes, transform, batch_size, seed) for name, domain in data.domains.items()
        }
    if isinstance(data, Mapping):
        found = {name: labeled_domains(part, transform, batch_size, seed) for name, part in data.items()}
        return {" ".join(filter(None, (name, own))): one for name, part in found.items() for own, one in part.items()}
    classes = tuple(getattr(data, "classes", None) or getattr(getattr(data, "dataset", None), "classes", None) or ())
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        order = torch.Generator().manual_seed(seed)
        collate = _Collate(transform)
        return {"": Labeled(DataLoader(data, batch_size, True, generator=order, collate_fn=collate), classes)}
    if not isinstance(data, Iterable):
        raise BadOption(f"Expected a folder, a data set or a loader of labeled images, got a {type(data).__name__}")
    return {"": Labeled(data, classes)}


_NO_TRANSFORM = (
    "The images are not tensors yet: pass transform=, a function from an image to the network's input as in training, "
    "such as torchvision.models.ResNet18_Weights.DEFAULT.transforms()"
)


def _opened(data: str | Path) -> DomainDataset:
    """Open a folder of domains, a folder of classes, or a data set by name."""
    path = Path(data).expanduser()
    if not path.is_dir():
        if str(data) in datasets():
            return open_dataset(str(data))
        raise BadFile(f"No folder and no data set {str(data)!r}; data sets: {', '.join(datasets())}")
    return open_dataset("folders", path)


def _of_files(domain: Domain, classes: tuple[str, ...], transform: Transform, batch_size: int, seed: int) -> Labeled:
    order = torch.randperm(len(domain.examples), generator=torch.Generator().manual_seed(seed))
    batches = _Files(domain, transform, order.split(batch_size))
    return Labeled(batches, classes, batches.skipped)


@dataclass(frozen=True)
class _Files:
    """Batches of the images of a domain, read when they are asked for, without those that cannot be read."""

    domain: Domain
    transform: Transform
    chunks: Sequence[Tensor]  # positions
    skipped: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        with ThreadPoolExecutor() as pool:
            loaded = (list(filter(None, pool.map(self._load, chunk.tolist()))) for chunk in self.chunks)
            for found in prefetch(loaded):
                if found:
                    yield torch.stack([image for image, _ in found]), torch.tensor([label for _, label in found])

    def _load(self, at: int) -> tuple[Tensor, int] | None:
        example = self.domain.examples[at]
        try:
            return self.transform(self.domain.read(example.name)), example.label
        except BadFile as error:
            self.skipped[example.name] = str(error)
            return None


@dataclass(frozen=True)
class _Collate:
    """Makes a batch of the items of a data set; a class, so that worker processes can get it."""

    transform: Transform | None

    def __call__(self, items: Sequence[tuple[Any, int]]) -> tuple[Tensor, Tensor]:
        images = [item[0] if isinstance(item[0], Tensor) else self._transformed(item[0]) for item in items]
        return torch.stack(images), torch.tensor([int(item[1]) for item in items])

    def _transformed(self, image: Any) -> Tensor:
        if self.transform is None:
            raise BadOption(_NO_TRANSFORM)
        return self.transform(image)

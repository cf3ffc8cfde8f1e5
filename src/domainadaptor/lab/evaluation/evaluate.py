"""`evaluate`: the accuracy of methods on labeled images, side by side, as rows of a table."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from domainadaptor.adaptation.adapt import adapt
from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.batch import images_of
from domainadaptor.adaptation.logits import OutputReader
from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.errors import BadBatch, BadOption
from domainadaptor.lab.data.locate import fold
from domainadaptor.lab.evaluation.labeled import Transform, labeled_domains
from domainadaptor.lab.measure import timed
from domainadaptor.options import suggestion

Method: TypeAlias = str | Callable[..., Adaptor] | tuple[str | Callable[..., Adaptor], Mapping[str, Any]] | Adaptor


def evaluate(
    network: nn.Module,
    data: Any,
    methods: Sequence[str] | Mapping[str, Method] = ("source", DEFAULT_METHOD),
    *,
    transform: Transform | None = None,
    classes: Sequence[str] = (),
    batch_size: int = 64,
    seed: int = 0,
    output: OutputReader | None = None,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Return the accuracy of methods on labeled images, one row per domain and method.

    Every batch goes to each method in turn, so that all see the same images in the same order. Adaptors are reset
    before each domain. `pandas.DataFrame(rows)` makes a table of the rows.

    Args:
        network: A trained network, on its device.
        data: Labeled images: a folder with a folder per class, or with a folder per domain that contains those; the
            name of a data set, such as "pacs"; a data set of images and labels, such as torchvision's `ImageFolder`; a
            loader of (images, labels), which is read in its own order; or a dict from domains to any of these.
        methods: Names of methods, or a dict from labels of your choice to methods: a name, a function, a tuple of one
            of these and a dict of options, or an adaptor.
        transform: From an image to the network's input, as in training, for data that are not tensors yet. Networks of
            timm have one of their own.
        classes: The network's classes, by output, if the folders are only some of them or in another order.
        batch_size: Images per batch, unless a loader makes the batches.
        seed: Seed of the order of the images, unless a loader has its own.
        output: As for `adapt`: a function from what the network returns to its logits.
        progress: Whether to show a progress bar.

    Returns:
        Rows with the keys domain, method, images, accuracy and source_accuracy (in percent), changed, better and worse
        (predictions that differ from the source model's, and those of them that became right or wrong), fell_back
        (batches that the source model predicted instead), skipped (files that cannot be read), seconds and notes.

    Raises:
        BadOption: There is no such method, data set or class, or images need a transform.
        BadBatch: The loader yields no labels.

    Example:
        >>> labeled = [(images, torch.arange(8) % 5)]
        >>> rows = da.evaluate(network, labeled, ["source", "adamixbn"], progress=False)
        >>> [(row["method"], row["images"]) for row in rows]
        [('source', 8), ('adamixbn', 8)]
    """
    source = adapt(network, "source", output=output)
    named = methods if isinstance(methods, Mapping) else {name: name for name in methods}
    adaptors = {label: _adaptor(network, method, output) for label, method in named.items()}
    rows = []
    for domain, images in labeled_domains(data, transform, batch_size, seed).items():
        for adaptor in adaptors.values():
            adaptor.reset()
        counts = {label: _Counts() for label in adaptors}
        for number, batch in enumerate(tqdm(images.batches, desc=domain or None, unit="batch", disable=not progress)):
            pixels, labels = _labeled(batch, number, next(source.parameters()).device)
            logits = source(pixels).cpu()
            outputs = _outputs(images.classes, classes, logits.shape[1])
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(outputs):
                raise BadBatch(
                    f"Label {int(labels.max())} in batch {number}, but the network has {len(outputs)} outputs"
                )
            labels = outputs[labels]
            _count(pixels, labels, logits.argmax(1), adaptors, counts)
        rows += [{"domain": domain, "method": label, **counts[label].row(len(images.skipped))} for label in adaptors]
    for adaptor in adaptors.values():
        adaptor.reset()
    return rows


def _adaptor(network: nn.Module, method: Method, output: OutputReader | None) -> Adaptor:
    if isinstance(method, Adaptor):
        return method
    name, options = method if isinstance(method, tuple) else (method, {})
    return adapt(network, name, output=output, **options)


class _Counts(Counter[str]):
    """What one method did on one domain."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds, self.notes = 0.0, dict[str, None]()

    def row(self, skipped: int) -> dict[str, Any]:
        images = self["images"]
        accuracy, of_source = (100 * self[name] / images if images else math.nan for name in ("right", "source_right"))
        return {
            "images": images,
            "accuracy": accuracy,
            "source_accuracy": of_source,
            **{name: self[name] for name in ("changed", "better", "worse", "fell_back")},
            "skipped": skipped,
            "seconds": round(self.seconds, 3),
            "notes": "; ".join(self.notes),
        }


def _count(
    images: Tensor, labels: Tensor, source: Tensor, adaptors: Mapping[str, Adaptor], counts: Mapping[str, _Counts]
) -> None:
    """Let each method adapt to a batch, and compare its predictions with the labels and the source model's."""
    for label, adaptor in adaptors.items():
        result, seconds = timed(partial(adaptor.adapt, images), images.device)
        found, own = result.logits.argmax(1).cpu(), counts[label]
        was, now = source == labels, found == labels
        flags = {"right": now, "source_right": was, "changed": found != source}
        flags |= {"better": now & ~was, "worse": was & ~now}
        own.update({name: int(flag.sum()) for name, flag in flags.items()})
        own.update(images=len(labels), fell_back=int(result.fell_back))
        own.seconds += seconds
        if result.note:
            own.notes[result.note] = None


def _labeled(batch: object, number: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the images and the labels of a batch."""
    images, found = images_of(batch, number), None
    if isinstance(batch, Mapping):
        found = next((batch[key] for key in ("labels", "label") if key in batch), None)
    elif isinstance(batch, tuple | list) and len(batch) > 1:
        found = batch[1]
    labels = torch.as_tensor([] if found is None else found).cpu()
    if labels.shape != (len(images),) or labels.is_floating_point():
        raise BadBatch(
            f"Expected batch {number} to be (images, labels) with one class number per image, or a dict with 'labels'; "
            f"got {len(images)} images and {'no labels' if found is None else f'labels of shape {tuple(labels.shape)}'}"
        )
    return images.to(device), labels.long()


def _outputs(names: Sequence[str], classes: Sequence[str], count: int) -> Tensor:
    """Return the network's output for each label of the data."""
    if not names or not classes:
        if names and len(names) != count:
            raise BadOption(
                f"The data have {len(names)} classes ({', '.join(names[:4])} …), the network has {count} outputs: pass "
                "classes=, the names of the network's classes in the order of its outputs"
            )
        return torch.arange(count)
    known = {fold(name): at for at, name in enumerate(classes)}
    if other := [name for name in names if fold(name) not in known]:
        raise BadOption(f"The network has no class {other[0]!r}; {suggestion(other[0], list(classes))}")
    return torch.tensor([known[fold(name)] for name in names])

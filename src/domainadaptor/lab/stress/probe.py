"""What an adaptor would make of clean labeled images at this moment, without learning from them."""

from collections.abc import Callable

from torch import Tensor

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.lab.stress.streams import Labeled


def probe_accuracy(adaptor: Adaptor, probe: Labeled, batch_size: int) -> float:
    """Percent of the images that it gets right with its present weights and statistics; it stays exactly as it is.

    Each batch is predicted as if it came next: where there is a guard, with the source network's answer if it notices.
    """
    return _percent(lambda images: adaptor.peek(images).logits, probe, batch_size)


def source_accuracy(adaptor: Adaptor, probe: Labeled, batch_size: int) -> float:
    """Percent of the images that the source network itself gets right."""
    return _percent(adaptor.source_logits, probe, batch_size)


def _percent(answer: Callable[[Tensor], Tensor], probe: Labeled, batch_size: int) -> float:
    # Batches of nearly the same size: a rest of a few images would be a batch of another kind.
    parts = max(1, -(-len(probe.images) // batch_size))
    chunks = zip(probe.images.tensor_split(parts), probe.labels.tensor_split(parts), strict=True)
    correct = sum(int((answer(images).argmax(1).cpu() == labels.cpu()).sum()) for images, labels in chunks)
    return 100 * correct / len(probe.images)

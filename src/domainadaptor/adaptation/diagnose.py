"""`diagnose`: is there a shift, where, and will adapting help? No labels are needed."""

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from statistics import fmean, median
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from domainadaptor.adaptation.adapt import adapt
from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.batch import fitted_batch, given_batches
from domainadaptor.adaptation.calibrate import FEW, FEWEST, Calibration
from domainadaptor.adaptation.comparison import Comparison, classes_named
from domainadaptor.adaptation.diagnosis import BatchSize, ChangedAnswer, Cost, Diagnosis
from domainadaptor.adaptation.estimate import Answers, expect
from domainadaptor.adaptation.logits import OutputReader, in_loss_precision
from domainadaptor.errors import SmallBatch, UnsupportedNetwork

T = TypeVar("T")

_COMPARED = 256  # images with which batch sizes are compared
_SIZES = (1, 4, 16, 64)
_SORTED = 0.75  # batches that name less than this share of the classes that shuffled ones name are sorted
_ONE = 1.5  # as many classes are named if nearly all answers are one class


def diagnose(
    network: nn.Module, batches: Iterable[Any], *, batch_size: int = 64, output: OutputReader | None = None
) -> Diagnosis:
    """Tell without labels whether these images differ from the training images, and whether adapting will help.

    It takes about ten forward passes per image. The verdict is on the method "auto".

    Args:
        network: Any trained network with batch normalization; it is never changed.
        batches: As for `calibrate`; 256 or more images are best. Their order is kept, so that batches which are
            unsuitable show.
        batch_size: How many images are adapted together.
        output: As for `adapt`.

    Raises:
        BadBatch: Images cannot be used, or there are none.
        UnsupportedNetwork: The network has no batch normalization, or returns no logits of classes.

    Example:
        >>> found = da.diagnose(network, torch.randn(64, 3, 16, 16))
        >>> found.images
        64
    """
    examination = _Examination(network, output)
    given: list[int] = []

    def counted() -> Iterator[Tensor]:
        for images in given_batches(batches, batch_size):
            given.append(len(images))
            yield images

    for images in _regrouped(counted(), batch_size):
        examination.add(images)
    return examination.diagnosis(batch_size, given)


class _Examination:
    """Measures batches of images, with the source model's answers and those of `auto`."""

    def __init__(self, network: nn.Module, output: OutputReader | None) -> None:
        self._calibration = Calibration(network)
        self._output = output
        self._adaptor = adapt(network, "auto", output=output)
        self._adaptor.watch.compares = False  # all batches are compared here
        self._answers, self._compared = Answers(), Comparison()
        self._forwards = 0.0
        self._seconds: list[tuple[float, float]] = []
        self._kept: list[Tensor] = []  # batches with which batch sizes are compared
        self._before: list[list[int]] = []  # answers by batch
        self._after: list[list[int]] = []
        self._changed: list[ChangedAnswer] = []

    def add(self, images: Tensor) -> None:
        """Measure a batch."""
        images = fitted_batch(images, self._adaptor.source)
        if not self._after:
            self._forwards = _forwards(self._adaptor, images[:4])
        self._calibration.add(images)
        source, plain = _timed(lambda: self._adaptor.source_logits(images))
        if not isinstance(source, Tensor) or source.ndim != 2 or source.shape[1] < 2:
            raise UnsupportedNetwork(
                "Expected a network with logits of two or more classes per image, (N, K): only their answers can be "
                "compared. Pass output=<a function from what the network returns to its logits>."
            )
        result, took = _timed(lambda: self._adaptor.adapt(images))
        self._seconds.append((plain, took))
        self._answers.add(source, result.logits)
        self._compared.add(source, result)
        start = sum(map(len, self._after))
        (before, sure), (after, surer) = (_answers(logits) for logits in (source, result.logits))
        self._before.append(before)
        self._after.append(after)
        rows = enumerate(zip(before, after, sure, surer, strict=True), start)
        self._changed += [ChangedAnswer(at, *row) for at, row in rows if row[0] != row[1]]
        if start < _COMPARED:
            self._kept.append(images)

    def diagnosis(self, batch_size: int, given: Sequence[int]) -> Diagnosis:
        """Return what was found, given the sizes of the loader's batches."""
        plain = self._calibration.network()  # raises an error if there were no images
        sizes = tuple(self._batch_sizes(plain))
        steady = self._seconds[1:] or self._seconds  # the first batch is slower
        before, after = (median(seconds) for seconds in zip(*steady, strict=True))
        return Diagnosis(
            images=self._calibration.images,
            batch_size=batch_size,
            layers=tuple(self._calibration.layers()),
            expected=expect(self._answers.signals()),
            changed=tuple(self._changed),
            batch_sizes=sizes,
            cost=Cost(self._forwards, seconds=after, seconds_plain=before),
            warnings=tuple(self._warnings(given)),
        )

    def _batch_sizes(self, plain: nn.Module) -> Iterator[BatchSize]:
        """Compare answers with statistics of a batch to those with statistics of all images."""
        images = torch.cat([batch for batch in self._kept if batch.shape[1:] == self._kept[0].shape[1:]])
        steady = adapt(plain, "source", output=self._output)
        single = adapt(self._adaptor.source, "auto", effort="one", output=self._output)
        wanted = [answer for batch in images.split(_SIZES[-1]) for answer in _answers(steady(batch))[0]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallBatch)
            for size in _SIZES:
                if size <= len(images):
                    found = [answer for batch in images.split(size) for answer in _answers(single(batch))[0]]
                    yield BatchSize(size, fmean(a == b for a, b in zip(found, wanted, strict=True)))

    def _warnings(self, given: Sequence[int]) -> Iterator[str]:
        if self._calibration.images < FEWEST:
            yield FEW.format(images=self._calibration.images)
        elif len(given) > 1 and fmean(given) < FEWEST:
            yield (
                f"The loader gives batches of {fmean(given):.0f}. They were joined to larger ones here, because the "
                f"statistics of fewer than {FEWEST} images are uncertain: do that too, or use a calibrated network."
            )
        if _variety([list(chain(*self._after))]) < _ONE:
            yield (
                "Nearly all answers are one class. If the images show other classes too, the network cannot tell them "
                "apart; if not, no statement about other images follows."
            )
        elif _are_sorted(self._before) or _are_sorted(self._after):
            yield (
                "The images are sorted by class, or come in runs of a class. Adapting to a batch of few classes "
                "misleads: shuffle the images, or use a calibrated network."
            )
        yield from self._compared.texts(self._adaptor)


def _regrouped(batches: Iterable[Tensor], size: int) -> Iterator[Tensor]:
    """Yield batches of one size in the same order; smaller ones at the end, and before images of another shape."""
    held: list[Tensor] = []
    for images in batches:
        for part in images.split(size):
            if held and held[0].shape[1:] != part.shape[1:]:
                yield torch.cat(held)
                held = []
            joined = torch.cat([*held, part])
            held = [joined]
            if len(joined) >= size:
                yield joined[:size]
                held = [joined[size:]] if len(joined) > size else []
    if held:
        yield held[0]


def _answers(logits: Tensor) -> tuple[list[int], list[float]]:
    """Return the class of each image and the confidence in it."""
    confidence, best = in_loss_precision(logits.detach()).softmax(1).max(1)
    return best.tolist(), confidence.tolist()


def _variety(batches: Iterable[list[int]]) -> float:
    """Return how many classes the answers of a batch name, on average."""
    return fmean(classes_named(Counter(batch)) for batch in batches)


def _are_sorted(batches: list[list[int]]) -> bool:
    """Return whether the answers of a batch name fewer classes than they would if the images were shuffled."""
    full = [batch for batch in batches if len(batch) >= FEWEST]
    return bool(full) and _variety(full) < _SORTED * _variety(_shuffled(full))


def _shuffled(batches: list[list[int]]) -> list[list[int]]:
    answers = torch.tensor([answer for batch in batches for answer in batch])
    order = torch.randperm(len(answers), generator=torch.Generator().manual_seed(0))
    return [part.tolist() for part in answers[order].split([len(batch) for batch in batches])]


def _forwards(adaptor: Adaptor, images: Tensor) -> float:
    """Return what adapting costs in forward passes of the source model, by the operations of its layers."""
    counts = []
    for work in (adaptor.source_logits, adaptor.peek):
        with FlopCounterMode(display=False) as counter:
            work(images)
        counts.append(counter.get_total_flops())
    return float(round(counts[1] / max(counts[0], 1), 2))


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result of some work, and its seconds."""
    start = time.perf_counter()
    result = work()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return result, time.perf_counter() - start

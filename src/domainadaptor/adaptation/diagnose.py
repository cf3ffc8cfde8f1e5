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
from domainadaptor.adaptation.estimate import Answers, Expectation, expect
from domainadaptor.adaptation.logits import OutputReader, in_loss_precision
from domainadaptor.errors import SmallBatch, UnsupportedNetwork

T = TypeVar("T")

_SAMPLE = 256  # images that are kept to adapt to them in other batches
_SIZES = (1, 4, 16, 64)
_SORTED = 0.9  # batches that name less than this share of the classes that shuffled ones name are sorted
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
        self._sample = _Sample(_SAMPLE)
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
        self._sample.add(images)

    def diagnosis(self, batch_size: int, given: Sequence[int]) -> Diagnosis:
        """Return what was found, given the sizes of the loader's batches."""
        plain = self._calibration.network()  # raises an error if there were no images
        positions, images = self._sample.shuffled()
        steady = _predicted(adapt(plain, "source", output=self._output), images, batch_size)
        expected, shuffled = expect(self._answers.signals()), None
        if _are_sorted(self._before) or _are_sorted(self._after):
            expected, shuffled = self._in_order(positions, images.split(batch_size), steady)
        times = self._seconds[1:] or self._seconds  # the first batch is slower
        before, after = (median(seconds) for seconds in zip(*times, strict=True))
        return Diagnosis(
            images=self._calibration.images,
            batch_size=batch_size,
            layers=tuple(self._calibration.layers()),
            expected=expected,
            shuffled=shuffled,
            changed=tuple(self._changed),
            batch_sizes=tuple(self._batch_sizes(images, steady)),
            cost=Cost(self._forwards, seconds=after, seconds_plain=before),
            warnings=tuple(self._warnings(given, shuffled)),
        )

    def _in_order(
        self, positions: list[int], batches: Sequence[Tensor], steady: list[int]
    ) -> tuple[Expectation, Expectation]:
        """Return what to expect of images in runs of a class, as they come and if they were shuffled.

        Answers that differ from those with statistics of all images, and would not if shuffled, count as wrong.
        """
        answers, adapted = Answers(), []
        for batch in batches:
            logits = self._adaptor(batch)
            answers.add(self._adaptor.source_logits(batch), logits)
            adapted += _answers(logits)[0]
        in_order = list(chain(*self._after))
        lost = _agreement(adapted, steady) - _agreement([in_order[at] for at in positions], steady)
        signals = answers.signals()
        return expect(signals, lost=max(lost, 0.0)), expect(signals)

    def _batch_sizes(self, images: Tensor, steady: list[int]) -> Iterator[BatchSize]:
        """Compare answers with statistics of a batch to those with statistics of all images."""
        single = adapt(self._adaptor.source, "auto", effort="one", output=self._output)
        for size in _SIZES:
            if size <= len(images):
                found = _predicted(single, images, size)
                yield BatchSize(size, _agreement(found, steady))

    def _warnings(self, given: Sequence[int], shuffled: Expectation | None) -> Iterator[str]:
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
        elif shuffled is not None:
            yield (
                "The images are sorted by class, or come in runs of a class. Adapting to a batch of few classes "
                f"misleads. If they were shuffled, about {shuffled.after.value:.0%} of the answers should be right "
                "after adapting: shuffle them, or use a network that is calibrated on shuffled images."
            )
        yield from self._compared.texts(self._adaptor)


class _Sample:
    """A random sample of the images, and their positions among all of them."""

    def __init__(self, size: int) -> None:
        self._size, self._seen = size, 0
        self._held: list[tuple[int, Tensor]] = []
        self._generator = torch.Generator().manual_seed(0)

    def add(self, images: Tensor) -> None:
        """Keep or pass over each image. Only those of the first shape are kept."""
        for image in images:
            place = self._seen
            if place >= self._size:
                place = self._random(self._seen + 1)
            if not self._held or image.shape == self._held[0][1].shape:
                self._held[place : place + 1] = [(self._seen, image.clone())] if place < self._size else []
            self._seen += 1

    def shuffled(self) -> tuple[list[int], Tensor]:
        """Return the positions and the images, (N, ...), in random order."""
        order = torch.randperm(len(self._held), generator=self._generator).tolist()
        return [self._held[at][0] for at in order], torch.stack([self._held[at][1] for at in order])

    def _random(self, below: int) -> int:
        return int(torch.randint(below, (), generator=self._generator))


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


def _predicted(adaptor: Adaptor, images: Tensor, size: int) -> list[int]:
    """Return the class of each image, in batches of a size, without warnings about it."""
    adaptor.watch.compares = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallBatch)
        return [answer for batch in images.split(size) for answer in _answers(adaptor(batch))[0]]


def _agreement(some: list[int], others: list[int]) -> float:
    return fmean(a == b for a, b in zip(some, others, strict=True))


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

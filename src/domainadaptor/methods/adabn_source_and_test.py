"""AdaBN over source and test images together, measured once. Li et al., Pattern Recognition 2018."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork
from domainadaptor.adaptation.adaptor import Adaptation, Adaptor
from domainadaptor.adaptation.batch import checked_batch
from domainadaptor.adaptation.learning import LearningAdaptor
from domainadaptor.adaptation.logits import finite
from domainadaptor.adaptation.predict import images_of
from domainadaptor.catalog import method
from domainadaptor.errors import BadBatch, BadOption
from domainadaptor.norms.pooled import PooledNorm
from domainadaptor.norms.recognize import SourceNorm
from domainadaptor.option_types import Count, Images, Variance

__all__ = ["adabn_source_and_test"]


class PooledAdaptor(LearningAdaptor):
    """Measures the statistics of all given images when it is made, and predicts with them ever after."""

    def __init__(
        self, network: nn.Module, images: Mapping[str, Iterable[Any]], variance: Variance, batch_size: int
    ) -> None:
        super().__init__(network)
        self._images = images
        self._variance: Variance = variance
        self._batch_size = batch_size
        self._rebuild()

    def _build(self) -> AdaptiveNetwork:
        return AdaptiveNetwork(self.source, norm=self._policy, learns="nothing")

    def _policy(self, source: SourceNorm) -> PooledNorm:
        return PooledNorm(source, variance=self._variance)

    def _prepare(self) -> None:
        # Other weights, or another precision, have other statistics: hence images that can be gone through again.
        main = self._build()
        with torch.no_grad(), self._guard.guarding():
            for images in chain.from_iterable(map(self._batches_of, self._images)):
                main.network(images.clone())  # its answer does not matter, of whatever kind it is
                main.settle()
        for name, norm in main.norms.items():
            assert isinstance(norm, PooledNorm)
            norm.fix()
            if not finite(norm.source_mean, norm.source_var):
                raise BadBatch(f"the statistics of these images are not finite at layer {name!r}; are they normalized?")
        self._main = main

    def _batches_of(self, option: str) -> Iterator[Tensor]:
        """The images of an option in batches, where and as the network is."""
        given = self._images[option]
        weights = [p for p in self.source.parameters() if p.is_floating_point()]
        seen = False
        for number, batch in enumerate(given.split(self._batch_size) if isinstance(given, Tensor) else given):
            images = images_of(batch, number)
            images = images.to(weights[0]) if weights and images.is_floating_point() else images
            if len(images) > 0:
                seen = True
                yield checked_batch(images, weights)
        if not seen:
            raise BadOption(f"{option} holds no images")

    def _learn(self, images: Tensor) -> Adaptation:
        with torch.no_grad():
            logits = self._pass(images)
        if not finite(logits):
            why = "the logits under the measured statistics are not finite"
            return self._fall_back(images, self._run_source(images), {}, why)
        return Adaptation(logits, logits.clone(), None, {}, None)


@method(
    paper="Li et al., AdaBN",
    year=2018,
    kind="statistics",
    forwards="1 (and 1 of all given images)",
    needs=("source samples",),
)
def adabn_source_and_test(
    network: nn.Module,
    *,
    source_images: Images = None,
    target_images: Images = None,
    variance: Variance = "unbiased",
    batch_size: Count = 64,
) -> Adaptor:
    """Measure statistics once, on all source and test images.

    One pass over each: batches are normalized by themselves on the way, as in training, and all values that a layer
    receives count alike, wherever they come from. The images are kept, to be measured again when the adaptor is moved
    or loads other weights.

    Args:
        network: Any trained network with batch normalization.
        source_images: Images like those of the training: a tensor, or batches that can be iterated repeatedly.
        target_images: The test images without labels: a tensor, or batches that can be iterated repeatedly.
        batch_size: Size of the batches that a tensor is split into.
    """
    images = {"source_images": source_images, "target_images": target_images}
    given = {option: value for option, value in images.items() if value is not None}
    for option, value in images.items():
        if value is None:
            raise BadOption(
                f"this method measures source and test images together, and has no {option}: pass {option}= a tensor "
                "of images, a list of batches or a DataLoader (on the command line --source-images DIR for predict, "
                "--source DOMAIN for evaluate, and the test images are those to predict); adabn needs neither"
            )
        if isinstance(value, Iterator) or not isinstance(value, Iterable):
            raise BadOption(
                f"{option} is a {type(value).__name__}: expected a tensor, a list of batches or a DataLoader, which "
                "can be gone through more than once"
            )
    return PooledAdaptor(network, given, variance, batch_size)

"""LearningAdaptor: an adaptor made of parts, which it resets, copies and restores alike."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork, LayerReport
from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.guard import Drift
from domainadaptor.adaptation.state import Part
from domainadaptor.profiling import FIRST, phase


class LearningAdaptor(Adaptor):
    """An adaptor with one adaptive network that predicts, and other parts beside it.

    A subclass writes `_build`, which makes the network from the source, and `_learn`; parts that do not depend on the
    source are made in its `__init__` and named by `_parts`.
    """

    @abstractmethod
    def _build(self) -> AdaptiveNetwork:
        """The network that predicts, from `self.source`."""

    def _parts(self) -> Sequence[Part]:
        """Everything with a state besides that network."""
        return ()

    def _prepare(self) -> None:
        self._main = self._build()
        for part in self._parts():
            part.reset()

    def _all(self) -> list[Part]:
        return [self._main, *self._parts()]

    def _forget(self) -> None:
        for part in self._all():
            part.reset()

    def _settle(self) -> None:
        for part in self._all():
            part.settle()

    def _memory(self) -> list[Any]:
        return [part.memory() for part in self._all()]

    def _recall(self, memory: list[Any] | None) -> None:
        if memory is None:
            self._forget()
            return
        for part, held in zip(self._all(), memory, strict=True):
            part.recall(held)

    def _runs_apart(self) -> bool:
        return bool(self._main.weights)

    def _learned(self) -> Mapping[str, Mapping[str, Tensor]]:
        return self._main.learned()

    def _drift(self) -> Drift:
        """Of scales and shifts, or of all weights where those do not learn: weights differ too much in size."""
        learnable = self._main.named_learnable()
        norms = [name for name in learnable if name not in self._main.weights]
        pairs = [(learnable[name].detach(), self._main.start(name)) for name in norms or learnable]
        follows = any(norm.follows for norm in self._main.norms.values() if norm.used)
        if not pairs:
            return super()._drift()._replace(follows=follows)
        far = torch.stack([(p - start).double().norm() for p, start in pairs]).norm()
        size = torch.stack([start.double().norm() for _, start in pairs]).norm()
        shares = [norm.batch_share for norm in self._main.norms.values() if norm.used]
        return Drift(float(far / size.clamp(min=1e-30)), min(shares, default=0.0), follows)

    def _plain_values(self) -> Mapping[str, Mapping[str, Tensor]]:
        return self._main.plain_values()

    def layers(self) -> list[LayerReport]:
        """What becomes of each norm layer; a layer that is used more than once is known after the first batch."""
        return self._main.layers()

    def _pass(self, images: Tensor, network: AdaptiveNetwork | None = None) -> Tensor:
        """One pass of the network that predicts, or of another."""
        network = self._main if network is None else network
        network.begin_pass()
        return self._run(network.network, images, None if network.stem is None else network.stem.input)

    def _first_pass(self, images: Tensor, grad: bool, network: AdaptiveNetwork | None = None) -> Tensor:
        """The pass that folds. A layer found to be used more than once must not, so the pass is made again."""
        network = self._main if network is None else network
        with phase(FIRST), torch.set_grad_enabled(grad):
            logits = self._pass(images, network)
            if network.find_reused():
                logits = self._pass(images, network)
        network.mark_used()
        return logits

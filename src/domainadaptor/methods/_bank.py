"""BankAdaptor: stores images of the stream in a bank and regularly takes a step on it. NOTE and RoTTA are this."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

import domainadaptor as da
from domainadaptor import option_types as t
from domainadaptor.adaptation.batch import check_same_size


class BankAdaptor(da.Adaptor):
    """Predict each batch, offer its images to a bank, and take a step on the bank after every `update_every` images.

    A subclass builds `_student`, the network that takes the steps, together with the network that predicts. A bank has
    the stored `images`, `seen`, the number of images offered, and `add`, which offers an image with its `_facts`.
    """

    _student: da.AdaptiveNetwork
    refreshes = False  # whether the images after a step are predicted once more

    def __init__(
        self,
        network: nn.Module,
        bank: Any,
        share: float,
        *,
        update_every: t.UpdateEvery = 64,
        lr: t.LearningRate = 1e-3,
        optimizer: t.Optimizer = "adam",
        momentum: t.Momentum = 0.9,
        reset_every: t.ResetEvery = None,
        predict: t.Predict = "before",
    ) -> None:
        super().__init__(network, reset_every=reset_every)
        self._bank, self._share, self._every = bank, share, update_every
        self._optimizer = da.LazyOptimizer(da.make_optimizer(optimizer, lr=lr, momentum=momentum))
        self._predict_after = predict == "after"
        self._rebuild()

    @abstractmethod
    def _facts(self, logits: Tensor) -> list[tuple[Any, ...]]:
        """Return what the bank is told about each image of a batch."""

    @abstractmethod
    def _bank_loss(self, like: Tensor) -> Tensor:
        """Return the loss of the bank's images, on the device and in the precision of a tensor."""

    def _learn(self, images: Tensor) -> da.Adaptation:
        for held in self._bank.images[:1]:
            check_same_size(held, images)
        with torch.no_grad():
            before = self._main(images)
        alpha, note = self._main.alphas(), self._main.single_note()
        if not da.finite(before):
            return self._fall_back(images, None, "the logits under running statistics are not finite")
        logits, loss, facts = before.clone(), None, self._facts(before)
        for at, image in enumerate(images):
            self._bank.add(image.detach().clone(), *facts[at])
            if self._bank.seen % self._every:
                continue
            taken = self._update(images)
            if isinstance(taken, str):
                return self._fall_back(images, before, taken)
            loss = taken
            if self.refreshes and at + 1 < len(images):
                with torch.no_grad():
                    logits[at + 1 :] = self._main(images[at + 1 :])
                facts = self._facts(logits)
        if self._predict_after and loss is not None:
            with torch.no_grad():
                logits = self._main(images)
        return da.Adaptation(logits.detach(), before.detach(), loss, alpha, note)

    def _update(self, like: Tensor) -> Tensor | str:
        """Take a step on the bank as one batch; return the loss, or why no step can be taken."""
        networks = dict.fromkeys([self._main, self._student])  # one or two
        for norm in (norm for network in networks for norm in network.norms.values()):
            norm.following = self._share
        loss = self._bank_loss(like)
        parameters = list(self._student.learnable().values())
        why = da.gradient_step(loss, parameters, self._optimizer) if parameters else None
        for network in networks:  # keep the statistics now, for the following images of this batch
            network.end_batch()
        return loss.detach() if why is None else why

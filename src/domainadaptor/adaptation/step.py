"""StepAdaptor: adaptive norm layers, an objective, a few gradient steps and a second pass. Most methods are this."""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork, Learns, NormFactory
from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.logits import finite, in_loss_precision, rows
from domainadaptor.adaptation.objective import Objective
from domainadaptor.adaptation.predictor import Predictor
from domainadaptor.adaptation.result import Adaptation
from domainadaptor.adaptation.reuse import Reuse
from domainadaptor.adaptation.state import LazyOptimizer, OptimizerFactory, Stateful
from domainadaptor.errors import UnsupportedNetwork, listed
from domainadaptor.profiling import BACKWARD, FIRST, SECOND, UPDATE, phase


@final
class StepAdaptor(Adaptor):
    """For each batch: adapt the statistics, step on what learns, predict; then reset, or go on.

    Args:
        network: Any trained network that the norm factory can adapt.
        norm: Makes the replacement of one batch norm layer; None keeps the network as it is.
        objective: What the steps minimize; None takes no step.
        optimizer: Makes the optimizer from what learns, after each reset.
        online: Whether what was learned stays from batch to batch; otherwise only momentum does.
        steps: Number of steps per batch.
        reset_every: Number of batches after which everything is reset; None never resets.
        reuse: Whether batches of one domain in a row reuse what the first two taught: one pass and no step. Then a
            batch of another domain resets, instead of `reset_every`.
        predict: "after" the steps with one more pass, or "before" them with the first one.
        learns: The scales and shifts of "norms", or "all" weights.
        predictor: Answers instead of the network's head; None uses the head.
        head: Name of the linear layer whose input are the features; None finds the last one.
        **settings: Fields of `NetworkSettings`: others, skip, adapt_from.

    Example:
        >>> from functools import partial
        >>> norm = partial(da.MixedNorm, alpha=0.7, fold=True)
        >>> adaptor = da.StepAdaptor(network, norm=norm, objective=da.LogitLoss(da.entropy))
        >>> adaptor(images).shape
        torch.Size([8, 5])
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        norm: NormFactory | None = None,
        objective: Objective | None = None,
        optimizer: OptimizerFactory | None = None,
        online: bool = True,
        steps: int = 1,
        reset_every: int | None = 1,
        reuse: bool = False,
        predict: str = "after",
        learns: Learns = "norms",
        predictor: Predictor | None = None,
        head: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(network, reset_every=None if reuse else reset_every)
        self._reuse = Reuse() if reuse else None
        self._steps = steps if objective is not None and optimizer is not None else 0
        self._objective = objective
        self._optimizer = None if optimizer is None else LazyOptimizer(optimizer, momentum_only=not online)
        self._predictor = predictor
        self._predict_after = predict == "after"
        needs_features = any(part is not None and part.needs_features for part in (predictor, objective))
        self._settings = settings | {
            "norm": norm,
            "learns": learns if self._steps else "nothing",
            "head": head or "" if needs_features else None,
            "repeated": self._steps > 0 and (self._predict_after or self._steps > 1),
        }
        if predictor is None:
            self.accepts = "anything" if objective is None else "rows" if objective.rows_only else "logits"
        self._rebuild()

    def _build(self) -> AdaptiveNetwork:
        return self._adaptive(**self._settings)

    def _parts(self) -> Sequence[Stateful]:
        parts = (self._reuse, self._objective, self._optimizer, self._predictor)
        return [part for part in parts if part is not None]

    def _learn(self, images: Tensor) -> Adaptation:
        objective = self._objective
        if self._reuse is not None:
            if self._reuse.knows(images):
                return self._reused(self._reuse, images)
            for part in (self._main, *self._parts()):
                if part is not self._reuse:
                    part.reset()
        with phase(FIRST), torch.set_grad_enabled(self._steps > 0 and objective is not None and objective.uses_logits):
            logits = before = self._main(images)
        alpha, single = self._main.alphas(), self._main.single_note()
        parameters = list(self._main.learnable().values()) if self._steps else []
        loss, note = None, None
        for step in range(self._steps if parameters else 0):
            if step > 0 and objective is not None and objective.uses_logits:
                logits = self._main(images)
            assert objective is not None
            loss_now = objective(self._main, images, in_loss_precision(rows(logits, self.multilabel)))
            if loss_now is None:
                break
            assert self._optimizer is not None
            if (why := gradient_step(loss_now, parameters, self._optimizer, before)) is not None:
                return self._fall_back(images, before if step or finite(before) else None, why)
            loss = loss_now.detach()
            if (note := objective.after_step(self._main, loss)) is not None:
                self._reset_parts()
                break
        if self._reuse is not None and loss is not None:
            self._reuse.learn(self._main, images)
        if loss is not None and self._predict_after:
            with phase(SECOND), torch.no_grad():
                logits = self._main(images)
            alpha = self._main.alphas()
        else:
            logits = before
        notes = [text for text in (single, self._idle_note(loss, parameters), note) if text]
        if isinstance(logits, Tensor):
            logits, before = self._answer(logits).detach(), before.detach()
        return Adaptation(logits, before, loss, alpha, "; ".join(notes) or None)

    @torch.no_grad()
    def _reused(self, reuse: Reuse, images: Tensor) -> Adaptation:
        reuse.teach(self._main)
        with phase(SECOND):
            logits = self._main(images)
        alpha = self._main.alphas()
        if isinstance(logits, Tensor):
            logits = self._answer(logits)
        return Adaptation(logits, logits, alpha_tensors=alpha, note="no step: earlier batches of this domain taught it")

    def _answer(self, logits: Tensor) -> Tensor:
        """Return the logits of the last pass, or what the predictor makes of them."""
        if self._predictor is None:
            return logits
        # Without autocast, whose matrix products would round what the predictor compares.
        with torch.no_grad(), torch.autocast(logits.device.type, enabled=False):
            wide = in_loss_precision(logits.detach())
            if not self._predictor.needs_features:
                return self._predictor(wide, None, None).to(logits.dtype)
            assert self._main.tap is not None
            return self._predictor(wide, self._main.features().detach(), self._main.tap.head).to(logits.dtype)

    def _idle_note(self, loss: Tensor | None, parameters: list[nn.Parameter]) -> str | None:
        if loss is not None or self._objective is None or not self._steps:
            return None
        if not parameters:
            return f"no step: every layer that could learn is used more than once ({listed(self._main.reused())})"
        return f"no step: {self._objective.idle}"

    def _check_plain(self) -> None:
        if self._predictor is not None:
            raise UnsupportedNetwork(
                f"{type(self._predictor).__name__} answers instead of the network's head, which a plain network cannot "
                "do. Use adaptor(images) instead."
            )


def gradient_step(
    loss: Tensor, parameters: list[nn.Parameter], optimizer: LazyOptimizer, *must_be_finite: Tensor
) -> str | None:
    """Take one step down a loss, or say why it cannot be taken and change nothing.

    The loss, its gradients and `must_be_finite` are checked together, with one read from the device.

    Raises:
        UnsupportedNetwork: The loss depends on none of the parameters.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> optimizer = da.LazyOptimizer(da.make_optimizer("sgd", lr=0.1, momentum=0.0))
        >>> da.gradient_step((weight / 0).sum(), [weight], optimizer)
        'the loss is not finite (inf)'
    """
    with phase(BACKWARD):
        gradients = compute_gradients(loss, parameters)
    if not finite(loss, *must_be_finite, *gradients):
        for p in parameters:
            p.grad = None
        if must_be_finite and not finite(*must_be_finite):
            return "the logits under adapted statistics are not finite"
        return f"the loss is not finite ({loss.item()})" if not finite(loss) else "the gradient is not finite"
    with phase(UPDATE):
        steps = optimizer.over(parameters)
        with torch.device("cpu"):  # where Adam keeps its counters, whatever the caller's default device
            steps.step()
        steps.zero_grad(set_to_none=True)
    return None


def compute_gradients(loss: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """Run the backward pass and return the gradients, which stay in `p.grad`.

    Raises:
        UnsupportedNetwork: The loss depends on none of the parameters.
    """
    # Not autograd.grad, which checkpointed blocks refuse; nothing else requires a gradient anyway.
    if loss.requires_grad:
        loss.backward()
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        raise UnsupportedNetwork(
            "The loss does not depend on any scale or shift of the norm layers. Does the network's forward run under "
            "no_grad, or detach its output?"
        )
    return gradients

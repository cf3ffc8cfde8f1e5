"""StepAdaptor: norm stand-ins, an objective, a few gradient steps, and a second pass; most methods are this."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork, Learns, NormPolicy, listed
from domainadaptor.adaptation.adaptor import Adaptation
from domainadaptor.adaptation.learning import LearningAdaptor
from domainadaptor.adaptation.logits import finite, in_loss_precision
from domainadaptor.adaptation.objective import Objective
from domainadaptor.adaptation.predictor import Predictor
from domainadaptor.adaptation.state import KeptOptimizer, MomentumAlone, OptimizerFactory, Part
from domainadaptor.errors import UnsupportedNetwork
from domainadaptor.options import check_choice
from domainadaptor.profiling import BACKWARD, SECOND, UPDATE, phase


class StepAdaptor(LearningAdaptor):
    """Each batch: measure and mix statistics, step on the norms' scale and shift, predict; then forget, or go on.

    Args:
        network: Any trained network with batch normalization.
        norm: Makes the stand-in for one batch norm layer; None keeps the network as it is.
        objective: What the steps minimize; None takes no step.
        optimizer: Makes the optimizer from what learns, anew whenever everything is forgotten.
        online: Whether what learned stays from batch to batch; otherwise only momentum does.
        steps: How many steps a batch gets.
        reset_every: After how many batches everything is forgotten; None never.
        predict: "after" the steps with one more pass, or "before" them with the first one.
        learns: The scales and shifts of "norms", or "all" weights.
        others: Whether layer, group and instance norms learn too; then a network may have those alone.
        skip: Names of layers, or of modules that hold them, whose scale and shift do not learn.
        adapt_from: The share of norm layers, or the name, before which scales and shifts do not learn either.
        predictor: What answers in place of the network's head; None: the head.
        head: Name of the linear layer whose input are the features; None: the last one.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        norm: NormPolicy | None = None,
        objective: Objective | None = None,
        optimizer: OptimizerFactory | None = None,
        online: bool = True,
        steps: int = 1,
        reset_every: int | None = 1,
        predict: str = "after",
        learns: Learns = "norms",
        others: bool = False,
        skip: tuple[str, ...] = (),
        adapt_from: str | float = 0.0,
        predictor: Predictor | None = None,
        head: str | None = None,
    ) -> None:
        super().__init__(network, reset_every=reset_every)
        check_choice("predict", predict, ("after", "before"))
        self._norm = norm
        self._objective = objective
        kept = KeptOptimizer if online else MomentumAlone
        self._optimizer = None if optimizer is None else kept(optimizer)
        self._steps = steps if objective is not None and optimizer is not None else 0
        self._predict_after = predict == "after"
        self._learns: Learns = learns if self._steps else "nothing"
        self._others = others
        self._skip = skip
        self._adapt_from = adapt_from
        self._predictor = predictor
        self._reads_features = objective is not None and objective.reads_features
        self._head = head or "" if predictor is not None or self._reads_features else None
        self._rebuild()

    def _build(self) -> AdaptiveNetwork:
        return AdaptiveNetwork(
            self.source,
            norm=self._norm,
            learns=self._learns,
            others=self._others,
            skip=self._skip,
            adapt_from=self._adapt_from,
            head=self._head,
            again=self._steps > 0 and (self._predict_after or self._steps > 1),
        )

    def _parts(self) -> Sequence[Part]:
        return [part for part in (self._objective, self._optimizer, self._predictor) if part is not None]

    def _plain_values(self) -> Mapping[str, Mapping[str, Tensor]]:
        if self._predictor is not None:
            raise UnsupportedNetwork(
                f"{type(self._predictor).__name__} answers in place of the network's head, which no plain network can "
                "do; use adaptor(images) instead of adaptor.adapted(images)"
            )
        return super()._plain_values()

    def _answer(self, logits: Tensor) -> Tensor:
        """The prediction from the last pass: the logits, or what the predictor makes of its features."""
        if self._predictor is None:
            return logits
        assert self._main.tap is not None
        # Without autocast, whose products of matrices would round what the predictor compares.
        with torch.no_grad(), torch.autocast(logits.device.type, enabled=False):
            features = self._main.tap.of(logits).detach()
            head = self._main.tap.head
            assert isinstance(head, nn.Linear)
            answer = self._predictor(in_loss_precision(logits.detach()), in_loss_precision(features), head)
            return answer.to(logits.dtype)

    def _learn(self, images: Tensor) -> Adaptation:
        logits = before = self._first_pass(images, grad=self._steps > 0 and not self._reads_features)
        alpha, single = self._main.alphas(), self._single()
        if not finite(before):
            why = "the logits under mixed statistics are not finite"
            return self._fall_back(images, self._run_source(images), alpha, why)
        learnable = self._main.learnable()
        loss = None
        if self._steps and learnable:
            taken = self._take_steps(images, before, learnable)
            if isinstance(taken, str):
                return self._fall_back(images, before, alpha, taken)
            if taken is not None and self._predict_after:
                with phase(SECOND), torch.no_grad():
                    logits = self._pass(images)
                alpha = self._main.alphas()
            loss = taken
        return Adaptation(self._answer(logits).detach(), before.detach(), loss, alpha, self._note(loss, single))

    def _catch_up(self, images: Tensor) -> None:
        if self._steps and not self._predict_after:
            with torch.no_grad():
                self._pass(images)

    def _take_steps(self, images: Tensor, before: Tensor, learnable: list[nn.Parameter]) -> float | str | None:
        """The last loss, why no step can be taken, or None where there was nothing to learn."""
        assert self._optimizer is not None
        optimizer = self._optimizer.over(learnable)
        value = None
        for step in range(self._steps):
            logits = before if step == 0 or self._reads_features else self._pass(images)
            loss = self._loss(images, in_loss_precision(logits))
            if loss is None:
                break
            if not finite(loss):
                return f"the loss is not finite ({loss.item()})"
            with phase(BACKWARD):
                gradients = gradients_of(loss, learnable)
            if not finite(*(g for g in gradients if g is not None)):
                return "the gradient is not finite"
            with phase(UPDATE):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            self._stepped()
            value = loss.item()
        return value

    def _loss(self, images: Tensor, logits: Tensor) -> Tensor | None:
        """What a step minimizes."""
        assert self._objective is not None
        return self._objective(self._features if self._reads_features else self._pass, images, logits)

    def _features(self, images: Tensor) -> Tensor:
        """What the head is given in a pass."""
        assert self._main.tap is not None
        return in_loss_precision(self._main.tap.of(self._pass(images)))

    def _stepped(self) -> None:
        """Comes after each step."""

    def _single(self) -> list[str]:
        """The layers that had one value per channel in the last pass."""
        return [name for name, norm in self._main.mixed().items() if any(use.single for use in norm.uses)]

    def _note(self, loss: float | None, single: list[str]) -> str | None:
        notes = []
        if single:
            notes.append(
                f"one value per channel, so alpha is 1 and the source statistics were kept, in: {listed(single)}"
            )
        if self._steps and loss is None and not self._main.learnable():
            reused = listed(self._main.reused())
            notes.append(f"no step: every layer that could learn is used more than once ({reused})")
        elif self._steps and loss is None and self._objective is not None:
            notes.append(f"no step: {self._objective.idle}")
        return "; ".join(notes) or None


def gradients_of(loss: Tensor, learnable: list[nn.Parameter]) -> list[Tensor | None]:
    """The gradients of what learns, left in place.

    Raises:
        UnsupportedNetwork: The loss depends on none of it.
    """
    # Not autograd.grad, which checkpointed blocks refuse; nothing else requires a gradient anyway.
    if loss.requires_grad:
        loss.backward()
    gradients = [parameter.grad for parameter in learnable]
    if all(gradient is None for gradient in gradients):
        raise UnsupportedNetwork(
            "the loss does not depend on any scale or shift of the norm layers: does the network's forward run under "
            "no_grad or detach its output?"
        )
    return gradients

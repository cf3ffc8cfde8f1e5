"""StepAdaptor: norm stand-ins, an objective, a few gradient steps, and a second pass; most methods are this."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from domainadaptor.adaptation.adaptor import Adaptation, Adaptor, LayerReport
from domainadaptor.adaptation.copying import twin
from domainadaptor.adaptation.logits import finite, in_loss_precision
from domainadaptor.adaptation.objective import Objective
from domainadaptor.adaptation.snapshot import Snapshot
from domainadaptor.errors import UnsupportedNetwork
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.norms.recognize import SourceNorm, find_norms

NormPolicy = Callable[[SourceNorm], MixedNorm]
OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]


@dataclass
class _Adaptive:
    """The network that adapts: the source's parameters, with stand-ins for its norms."""

    network: nn.Module
    norms: dict[str, MixedNorm]
    left: dict[str, str]
    buffers: Snapshot


class StepAdaptor(Adaptor):
    """Each batch: measure and mix statistics, step on the norms' scale and shift, predict; then forget.

    Args:
        network: Any trained network with batch normalization.
        norm: Makes the stand-in for one norm layer; None keeps the network as it is.
        objective: What the steps minimize; None takes no step.
        optimizer: Makes the optimizer from the scales and shifts, anew for each batch.
        steps: How many steps a batch gets.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        norm: NormPolicy | None = None,
        objective: Objective | None = None,
        optimizer: OptimizerFactory | None = None,
        steps: int = 1,
    ) -> None:
        super().__init__(network)
        self._norm = norm
        self._objective = objective
        self._optimizer = optimizer
        self._steps = steps if objective is not None and optimizer is not None else 0
        self._rebuild()

    def _prepare(self) -> None:
        found, left = ({}, {}) if self._norm is None else find_norms(self.source)
        norms = {} if self._norm is None else {name: self._norm(source) for name, source in found.items()}
        if self._steps and not any(norm.learns for norm in norms.values()):
            raise UnsupportedNetwork(
                "no norm layer has a scale or a shift to learn; use loss=None to mix statistics only"
            )
        network = twin(self.source, {found[name].layer: norm for name, norm in norms.items()}).eval()
        for norm in norms.values():
            for parameter in norm.learnable():
                parameter.requires_grad_(self._steps > 0)
        self._adaptive = _Adaptive(network, norms, left, Snapshot(network, self.source))

    def _forget(self) -> None:
        for norm in self._adaptive.norms.values():
            norm.reset()
        self._adaptive.buffers.restore()

    def layers(self) -> list[LayerReport]:
        """What becomes of each norm layer; a layer that is used more than once is known after the first batch."""
        reports = [
            LayerReport(name, self._kind(name), adapts=norm.used, why=_part(norm, self._steps > 0))
            for name, norm in self._adaptive.norms.items()
        ]
        left = self._adaptive.left
        return reports + [LayerReport(name, self._kind(name), adapts=False, why=why) for name, why in left.items()]

    def _kind(self, name: str) -> str:
        return type(self.source.get_submodule(name)).__name__

    def _learn(self, images: Tensor) -> Adaptation:
        logits = before = self._first_pass(images)
        alpha = self._alphas()
        if not finite(before):
            why = "the logits under mixed statistics are not finite"
            return self._fall_back(images, self._run_source(images), alpha, why)
        learnable = [p for norm in self._adaptive.norms.values() if norm.uses for p in norm.learnable()]
        loss = None
        if self._steps and learnable:
            taken = self._take_steps(images, before, learnable)
            if isinstance(taken, str):
                return self._fall_back(images, before, alpha, taken)
            with torch.no_grad():
                logits = self._pass(images)
            loss, alpha = taken, self._alphas()
        return Adaptation(logits.detach(), before.detach(), loss, alpha, self._note(loss))

    def _first_pass(self, images: Tensor) -> Tensor:
        """The pass that folds. A layer found to be used more than once must not, so the pass is made again."""
        norms = self._adaptive.norms
        with torch.set_grad_enabled(self._steps > 0):
            logits = self._pass(images)
            reused = {name for name, norm in norms.items() if len(norm.uses) > 1}
            if reused != {name for name, norm in norms.items() if norm.reused}:
                for name, norm in norms.items():
                    norm.reset()
                    norm.reused = name in reused
                logits = self._pass(images)
        for norm in norms.values():
            norm.used = bool(norm.uses)
        if norms and not any(norm.used for norm in norms.values()):
            raise UnsupportedNetwork(
                "the network's forward did not use any of its norm layers, so nothing can be adapted"
            )
        return logits

    def _take_steps(self, images: Tensor, before: Tensor, learnable: list[nn.Parameter]) -> float | str:
        """The last loss, or why no step can be taken."""
        assert self._objective is not None
        assert self._optimizer is not None
        optimizer = self._optimizer(learnable)
        self._objective.restart()
        value = 0.0
        for step in range(self._steps):
            logits = before if step == 0 else self._pass(images)
            loss = self._objective(self._pass, images, in_loss_precision(logits))
            if not finite(loss):
                return f"the loss is not finite ({loss.item()})"
            gradients = _gradients(loss, learnable)
            if not finite(*(g for g in gradients if g is not None)):
                return "the gradient is not finite"
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            value = loss.item()
        return value

    def _pass(self, images: Tensor) -> Tensor:
        for norm in self._adaptive.norms.values():
            norm.uses = []
        return self._run(self._adaptive.network, images)

    def _alphas(self) -> dict[str, float]:
        alphas: dict[str, float] = {}
        for name, norm in self._adaptive.norms.items():
            keys = [name] if len(norm.uses) == 1 else [f"{name}[{i}]" for i in range(len(norm.uses))]
            alphas |= {key: float(use.alpha) for key, use in zip(keys, norm.uses, strict=True)}
        return alphas

    def _note(self, loss: float | None) -> str | None:
        norms = self._adaptive.norms
        notes = []
        single = [name for name, norm in norms.items() if any(use.single for use in norm.uses)]
        if single:
            notes.append(
                f"one value per channel, so alpha is 1 and the source statistics were kept, in: {_listed(single)}"
            )
        if self._steps and loss is None:
            reused = [name for name, norm in norms.items() if norm.reused]
            notes.append(f"no step: every layer that could learn is used more than once ({_listed(reused)})")
        return "; ".join(notes) or None

    def _plain_values(self) -> Mapping[str, Mapping[str, Tensor]]:
        norms = self._adaptive.norms
        reused = [name for name, norm in norms.items() if norm.reused]
        if reused:
            raise UnsupportedNetwork(
                f"a plain layer holds one set of statistics, and {_listed(reused)} was used more than once; "
                "use adaptor(images) instead of adaptor.adapted(images)"
            )
        return {name: norm.plain_values() for name, norm in norms.items() if norm.uses}


def _gradients(loss: Tensor, learnable: list[nn.Parameter]) -> list[Tensor | None]:
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


def _part(norm: MixedNorm, steps: bool) -> str:
    if not norm.used:
        return "not used by the forward in eval mode"
    if norm.reused:
        return "used more than once: mixed, neither folded nor stepped"
    if not steps:
        return "statistics"
    return f"statistics, {' and '.join(norm.learns)}" if norm.learns else "statistics (it has no scale or shift)"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

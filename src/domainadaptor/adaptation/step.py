"""StepAdaptor: norm stand-ins, an objective, a few gradient steps, and a second pass; most methods are this."""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from domainadaptor.adaptation.adaptor import Adaptation, Adaptor, LayerReport
from domainadaptor.adaptation.copying import twin
from domainadaptor.adaptation.logits import finite, in_loss_precision
from domainadaptor.adaptation.objective import Objective
from domainadaptor.adaptation.snapshot import Snapshot
from domainadaptor.errors import UnsupportedNetwork
from domainadaptor.norms.adaptive import AdaptiveNorm
from domainadaptor.norms.mixed import MixedNorm
from domainadaptor.norms.recognize import SourceNorm, find_norms
from domainadaptor.norms.tuned import TunedNorm, find_other_norms
from domainadaptor.options import check_choice

NormPolicy = Callable[[SourceNorm], AdaptiveNorm]
OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]


@dataclass
class _Adaptive:
    """The network that adapts: the source's parameters, with stand-ins for its norms."""

    network: nn.Module
    norms: dict[str, AdaptiveNorm]
    left: dict[str, str]
    buffers: Snapshot


class _Memory(NamedTuple):
    """What was learned so far."""

    norms: dict[str, list[Tensor]]
    objective: Any
    optimizer: dict[str, Any] | None


class StepAdaptor(Adaptor):
    """Each batch: measure and mix statistics, step on the norms' scale and shift, predict; then forget, or go on.

    Args:
        network: Any trained network with batch normalization.
        norm: Makes the stand-in for one batch norm layer; None keeps the network as it is.
        objective: What the steps minimize; None takes no step.
        optimizer: Makes the optimizer from the scales and shifts, anew whenever everything is forgotten.
        steps: How many steps a batch gets.
        reset_every: After how many batches everything is forgotten; None never.
        predict: "after" the steps with one more pass, or "before" them with the first one.
        others: Whether layer, group and instance norms learn too; then a network may have those alone.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        norm: NormPolicy | None = None,
        objective: Objective | None = None,
        optimizer: OptimizerFactory | None = None,
        steps: int = 1,
        reset_every: int | None = 1,
        predict: str = "after",
        others: bool = False,
    ) -> None:
        super().__init__(network, reset_every=reset_every)
        check_choice("predict", predict, ("after", "before"))
        self._predict_after = predict == "after"
        self._others = others
        self._in_use: tuple[Optimizer, list[nn.Parameter]] | None = None
        self._norm = norm
        self._objective = objective
        self._optimizer = optimizer
        self._steps = steps if objective is not None and optimizer is not None else 0
        self._rebuild()

    def _prepare(self) -> None:
        others = find_other_norms(self.source) if self._others else {}
        found, left = ({}, {}) if self._norm is None else find_norms(self.source, required=not others)
        norms: dict[str, AdaptiveNorm] = {}
        if self._norm is not None:
            norms |= {name: self._norm(source) for name, source in found.items()}
        norms |= {name: TunedNorm(layer) for name, layer in others.items()}
        if self._steps and not any(norm.learns for norm in norms.values()):
            raise UnsupportedNetwork(
                "no norm layer has a scale or a shift to learn; use loss=None to mix statistics only"
            )
        layers = {name: source.layer for name, source in found.items()} | others
        network = twin(self.source, {layers[name]: norm for name, norm in norms.items()}).eval()
        for norm in norms.values():
            for parameter in norm.learnable():
                parameter.requires_grad_(self._steps > 0)
        self._adaptive = _Adaptive(network, norms, left, Snapshot(network, self.source))

        self._in_use = None

    def _forget(self) -> None:
        for norm in self._adaptive.norms.values():
            norm.reset()
        if self._objective is not None:
            self._objective.reset()
        self._in_use = None
        self._adaptive.buffers.restore()

    def _settle(self) -> None:
        for norm in self._adaptive.norms.values():
            norm.settle()
        self._adaptive.buffers.restore()

    def _memory(self) -> _Memory:
        return _Memory(
            {name: norm.memory() for name, norm in self._adaptive.norms.items()},
            None if self._objective is None else self._objective.memory(),
            None if self._in_use is None else copy.deepcopy(self._in_use[0].state_dict()),
        )

    def _recall(self, memory: _Memory | None) -> None:
        if memory is None:
            self._forget()
            return
        for name, norm in self._adaptive.norms.items():
            norm.recall(memory.norms[name])
        if self._objective is not None:
            self._objective.recall(memory.objective)
        self._in_use = None
        if memory.optimizer is not None:
            optimizer = self._optimizer_of(self._learnable())
            optimizer.load_state_dict(memory.optimizer)

    def _catch_up(self, images: Tensor) -> None:
        if self._steps and not self._predict_after:
            with torch.no_grad():
                self._pass(images)

    def _learned(self) -> Mapping[str, Mapping[str, Tensor]]:
        return {name: norm.learned() for name, norm in self._adaptive.norms.items() if norm.used}

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
        learnable = self._learnable()
        loss = None
        if self._steps and learnable:
            taken = self._take_steps(images, before, learnable)
            if isinstance(taken, str):
                return self._fall_back(images, before, alpha, taken)
            if taken is not None and self._predict_after:
                with torch.no_grad():
                    logits = self._pass(images)
                alpha = self._alphas()
            loss = taken
        return Adaptation(logits.detach(), before.detach(), loss, alpha, self._note(loss))

    def _learnable(self) -> list[nn.Parameter]:
        return [p for norm in self._adaptive.norms.values() if norm.used for p in norm.learnable()]

    def _optimizer_of(self, learnable: list[nn.Parameter]) -> Optimizer:
        """The optimizer in use, or a new one where there is none or something else learns now."""
        assert self._optimizer is not None
        if self._in_use is None or [id(p) for p in self._in_use[1]] != [id(p) for p in learnable]:
            self._in_use = self._optimizer(learnable), learnable
        return self._in_use[0]

    def _first_pass(self, images: Tensor) -> Tensor:
        """The pass that folds. A layer found to be used more than once must not, so the pass is made again."""
        norms = self._adaptive.norms
        with torch.set_grad_enabled(self._steps > 0):
            logits = self._pass(images)
            reused = {name for name, norm in norms.items() if norm.passes > 1}
            if reused != {name for name, norm in norms.items() if norm.reused}:
                for name, norm in norms.items():
                    norm.reset()
                    norm.reused = name in reused
                logits = self._pass(images)
        for norm in norms.values():
            norm.used = norm.passes > 0
        if norms and not any(norm.used for norm in norms.values()):
            raise UnsupportedNetwork(
                "the network's forward did not use any of its norm layers, so nothing can be adapted"
            )
        return logits

    def _take_steps(self, images: Tensor, before: Tensor, learnable: list[nn.Parameter]) -> float | str | None:
        """The last loss, why no step can be taken, or None where there was nothing to learn."""
        assert self._objective is not None
        optimizer = self._optimizer_of(learnable)
        value = None
        for step in range(self._steps):
            logits = before if step == 0 else self._pass(images)
            loss = self._objective(self._pass, images, in_loss_precision(logits))
            if loss is None:
                break
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
            norm.begin_pass()
        return self._run(self._adaptive.network, images)

    def _alphas(self) -> dict[str, float]:
        alphas: dict[str, float] = {}
        for name, norm in self._mixed().items():
            keys = [name] if len(norm.uses) == 1 else [f"{name}[{i}]" for i in range(len(norm.uses))]
            alphas |= {key: float(use.alpha) for key, use in zip(keys, norm.uses, strict=True)}
        return alphas

    def _mixed(self) -> dict[str, MixedNorm]:
        return {name: norm for name, norm in self._adaptive.norms.items() if isinstance(norm, MixedNorm)}

    def _note(self, loss: float | None) -> str | None:
        norms = self._adaptive.norms
        notes = []
        single = [name for name, norm in self._mixed().items() if any(use.single for use in norm.uses)]
        if single:
            notes.append(
                f"one value per channel, so alpha is 1 and the source statistics were kept, in: {_listed(single)}"
            )
        reused = [name for name, norm in norms.items() if norm.reused]
        if self._steps and loss is None and reused and not self._learnable():
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
        return {name: norm.plain_values() for name, norm in norms.items() if norm.used}


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


def _part(norm: AdaptiveNorm, steps: bool) -> str:
    if not norm.used:
        return "not used by the forward in eval mode"
    if norm.reused:
        return "used more than once: mixed, neither folded nor stepped"
    if isinstance(norm, TunedNorm):
        return " and ".join(norm.learns) if steps else "nothing: it takes each image's own statistics"
    if not steps:
        return "statistics"
    return f"statistics, {' and '.join(norm.learns)}" if norm.learns else "statistics (it has no scale or shift)"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

"""Adaptor: adapts to an unlabeled batch and predicts it. The path of every batch of every method is here."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork, LayerReport, NetworkSettings
from domainadaptor.adaptation.batch import checked_answer, checked_batch, explained
from domainadaptor.adaptation.change_detection import ChangeDetector
from domainadaptor.adaptation.comparison import Watch
from domainadaptor.adaptation.copying import independent_copy, linked_copy, unwrap, write_tensors
from domainadaptor.adaptation.fitting import with_fitting_methods
from domainadaptor.adaptation.graphs import outside_of_graphs
from domainadaptor.adaptation.guard import CollapseGuard, drift_of
from domainadaptor.adaptation.logits import Accepts, OutputReader, finite, read_logits, rows
from domainadaptor.adaptation.result import Adaptation
from domainadaptor.adaptation.snapshot import ParameterGuard
from domainadaptor.adaptation.state import Stateful
from domainadaptor.adaptation.turns import Turns
from domainadaptor.errors import BadBatch, UnsupportedNetwork


class Adaptor(nn.Module, ABC):
    """Adapt to each unlabeled batch, then predict it. The network that was wrapped is never changed.

    A subclass writes `_build` and `_learn`, lists in `_parts` whatever else has state, and calls `self._rebuild()` at
    the end of its `__init__`. Locking, checking, resetting, restoring and falling back to the source model happen here.

    Args:
        network: Any trained network that the method can adapt.
        reset_every: Number of batches after which everything is reset; None never resets, 1 is episodic.

    Example:
        >>> logits = da.adapt(network, "tent")(images)
    """

    def __init__(self, network: nn.Module, *, reset_every: int | None = 1) -> None:
        super().__init__()
        if isinstance(network, Adaptor):
            raise UnsupportedNetwork("This is already an adaptor. Wrap the network that it was made from.")
        plain = unwrap(network)
        self.reset_every = reset_every
        self.description = ""  # method and options, for repr
        self.output: OutputReader | None = None
        self.multilabel, self.min_batch = False, 1  # smaller batches are answered by the source model
        self.accepts: Accepts = "logits"  # what the network may return
        self.watch = Watch()
        self.collapse: CollapseGuard | None = None  # goes back to the source model where one is set
        self._batches = 0  # since the last reset
        self._pending: Any = None  # the state to go back to while a batch is not finished
        self._changes = ChangeDetector(plain)
        self._requires_grad = {name: p.requires_grad for name, p in plain.named_parameters()}
        self._turns = Turns()
        self.source = linked_copy(plain).eval()
        self.training = False
        self.register_load_state_dict_pre_hook(_take_own_tensors)
        self.register_load_state_dict_post_hook(_rebuild_after_loading)

    @abstractmethod
    def _build(self) -> AdaptiveNetwork:
        """Make the network that predicts, with `self._adaptive`."""

    @abstractmethod
    def _learn(self, images: Tensor) -> Adaptation:
        """Adapt to a checked batch of one image or more, and predict it."""

    def _parts(self) -> Sequence[Stateful]:
        """Return everything that has state, besides the network that predicts."""
        return ()

    def _check_plain(self) -> None:
        """Raise UnsupportedNetwork if no plain network can repeat the prediction."""

    def forward(self, images: Tensor, *inputs: Any) -> Any:
        """Adapt to a batch and return its logits, (N, K); without them, whatever the network returns."""
        return outside_of_graphs(self._process)(images, inputs).logits

    @final
    def adapt(self, images: Tensor, *inputs: Any) -> Adaptation:
        """Adapt to a batch and predict it.

        Args:
            images: The batch.
            *inputs: Whatever else the network takes; for methods that pass nothing but the batch to it.

        Raises:
            BadBatch: The images cannot be used, or even the source model's logits for them are not finite.
            SourceChanged: The network was edited after it was wrapped.
        """
        return self._process(images, inputs)

    @final
    def peek(self, images: Tensor, *inputs: Any, guarded: bool = True) -> Adaptation:
        """Return what `adapt` would return for this batch, and keep nothing of it.

        Args:
            images: The batch.
            *inputs: As `adapt` takes them.
            guarded: Whether the guard, if there is one, may answer with the source model.
        """
        return self._process(images, inputs, remember=False, guarded=guarded)

    @final
    def adapted_network(self, images: Tensor, *inputs: Any) -> nn.Module:
        """Adapt to a batch and return a plain, independent network with what it taught.

        Its eval output on the batch is the adapted one. Where a method predicts before its step, the network is that
        step ahead of the prediction.

        Raises:
            UnsupportedNetwork: No plain network can repeat the prediction.
        """
        plain: list[nn.Module] = []
        self._process(images, inputs, then=lambda result: plain.append(self._plain_network(images, result)))
        return plain[0]

    @final
    def source_logits(self, images: Tensor, *inputs: Any) -> Any:
        """Return the source model's logits, (N, K); without them, whatever it returns.

        Raises:
            BadBatch: The images cannot be used, or the source model's logits for them are not finite.
        """
        with self._turn():
            self._pending = self._save(), self._batches
            images = self._checked(images, inputs)
            with explained(images, self.source), self._guard.guarding():
                if len(images) == 0:
                    return self._empty(images).logits
                return checked_answer(self._run_source(images), self.source)

    @final
    def reset(self) -> None:
        """Forget every batch and go back to the source model."""
        with self._turn():
            self._pending = self._save(), self._batches
            self.watch.reset()
            self._reset()
            self._pending = None

    @final
    def check_source(self) -> None:
        """Compare every value of the wrapped network with what it was.

        Edits are noticed on every batch by version counters; only writes through `.data` need this full check.

        Raises:
            SourceChanged: The network was edited after it was wrapped.
        """
        self._changes.check(full=True)

    @final
    def layers(self) -> list[LayerReport]:
        """Report what happens to each norm layer. Layers that are used more than once are known after one batch."""
        return self._main.layers()

    def train(self, mode: bool = True) -> "Adaptor":
        """Do nothing: dropout and stochastic depth stay off, and adaptive norm layers have no modes."""
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the source model's state dict with what was learned in its place. A plain network can load it."""
        prefix: str = kwargs.get("prefix", args[1] if len(args) > 1 else "")
        with self._turn():
            state = self.source.state_dict(*args, **kwargs)
            for layer, values in (self._main.learned() if self._batches else {}).items():
                for name, value in values.items():
                    key = f"{prefix}{layer}.{name}" if layer else f"{prefix}{name}"
                    if key in state:
                        state[key] = value.detach().to(state[key].dtype).clone()
            return state

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load new source weights. The network that was wrapped keeps its own."""
        with self._turn():
            fresh = independent_copy(self.source)
            result = fresh.load_state_dict(state_dict, strict=strict, assign=assign)
            self._exchange(linked_copy(fresh))  # assigned tensors may be someone's Parameter objects
            self._changes = ChangeDetector(None)
            return result

    def __repr__(self) -> str:
        layers = self.layers()
        adapting = f"{sum(layer.adapts for layer in layers)} of {len(layers)} norm layers adapt"
        return f"Adaptor({self.description or type(self).__name__}: {adapting})"

    def _process(
        self,
        images: Tensor,
        inputs: tuple[Any, ...] = (),
        *,
        remember: bool = True,
        guarded: bool = True,
        then: Callable[[Adaptation], None] | None = None,
    ) -> Adaptation:
        """Check, adapt, predict; then keep what was learned, or go back to how it was."""
        with self._turn():
            self._pending = self._save(), self._batches
            images = self._checked(images, inputs)
            with explained(images, self.source), self._guard.guarding():
                result = self._not_adapted(images) or self._learn(images)
                result = self._judged(images, result, guarded)
                result = self.watch.look(self, images, result) if remember else result
                if then is not None:
                    then(result)
            if remember:
                self._end_batch(result, len(images))
                self._pending = None
            return result

    def _not_adapted(self, images: Tensor) -> Adaptation | None:
        if len(images) == 0:
            return self._empty(images)
        if len(images) >= self.min_batch:
            return None
        return self._fall_back(images, None, f"the batch is smaller than min_batch={self.min_batch}")

    def _judged(self, images: Tensor, result: Adaptation, guarded: bool) -> Adaptation:
        """Fall back to the source model if the prediction is unusable, or if the guard sees a collapse."""
        if result.fell_back:
            return result
        if not finite(result.logits):
            if not finite(result.before):
                return self._fall_back(images, None, "the logits under adapted statistics are not finite")
            return self._fall_back(images, result.before, "the adapted logits are not finite (lr too large?)")
        if not guarded or self.collapse is None:
            return result
        look = partial(rows, multilabel=self.multilabel)
        why = self.collapse.look(look(result.logits), drift_of(self._main), lambda: look(self._run_source(images)))
        return result if why is None else replace(self._fall_back(images, result.before, why), collapsed=True)

    def _end_batch(self, result: Adaptation, images: int) -> None:
        """Keep what was learned, or restore what was before the batch. Episodic methods start over."""
        if self.reset_every == 1 or result.fell_back:
            self._restore()
        else:
            for part in self._all():
                part.end_batch()
        self._batches += min(images, 1)  # empty batches do not count
        if result.collapsed or (self.reset_every is not None and self._batches >= self.reset_every):
            self._reset()

    def _save(self) -> Any:
        return None if self.reset_every == 1 else [part.state_dict() for part in self._all()]

    def _restore(self) -> None:
        """Go back to the state before the batch."""
        states, self._batches = self._pending
        if states is None:
            self._reset_parts()
        else:
            for part, state in zip(self._all(), states, strict=True):
                part.load_state_dict(state)

    def _reset_parts(self) -> None:
        for part in (self._main, *self._parts()):
            part.reset()

    def _reset(self) -> None:
        if self.reset_every != 1 or self._batches == 0:  # episodic methods are reset after every batch
            self._reset_parts()
        self._batches = 0
        if self.collapse is not None:
            self.collapse.reset()

    def _turn(self) -> AbstractContextManager[None]:
        return self._turns.take(self._undo)

    def _undo(self) -> None:
        """Go back to the state before a batch that was not finished, whatever stopped it."""
        self._main.inputs = ()
        if self._pending is not None:
            self._guard.restore()
            self._restore()
            self._pending = None

    def _checked(self, images: Tensor, inputs: tuple[Any, ...]) -> Tensor:
        self._changes.check()
        images = checked_batch(images, self.source.parameters())
        if inputs and self.accepts == "logits":
            raise BadBatch(
                f"Expected images alone, got {len(inputs)} more: this method may pass other images to the network, "
                "which these would not belong to. Use a method such as auto, adamixbn or tent."
            )
        self._main.inputs = inputs
        if self._main.weights and not self._guard.knows and len(images) > 0:
            # The adaptive network has weights of its own, so only this pass shows whether a forward writes to them.
            with explained(images, self.source), self._guard.guarding():
                self._run_source(images[:1])
        return images

    def _run_source(self, images: Tensor) -> Any:
        with torch.no_grad():
            return self._read_logits(self.source(images.clone(), *self._main.inputs), len(images))

    def _read_logits(self, output: object, count: int) -> Any:
        """Return the logits in what a network returns, or all of it if the method needs none."""

        def read(adaptor: Adaptor) -> Any:
            return read_logits(output, self.output, count, adaptor.accepts, self.multilabel)

        try:
            return read(self)
        except UnsupportedNetwork as error:
            raise with_fitting_methods(error, self.source, read) from None

    def _fall_back(self, images: Tensor, before: Tensor | None, why: str) -> Adaptation:
        """Answer with the source model, and say why."""
        logits = checked_answer(self._run_source(images), self.source)
        note = f"{why}; no step was kept and the logits are the source model's"
        before = before.detach() if isinstance(before, Tensor) else logits
        return Adaptation(logits, before, alpha_tensors=self._main.alphas(), note=note, fell_back=True)

    def _empty(self, images: Tensor) -> Adaptation:
        # Many networks cannot reshape zero images; one blank image tells the number of classes.
        logits = self._run_source(images.new_zeros((1, *images.shape[1:])))
        if not isinstance(logits, Tensor):
            raise BadBatch(f"The batch is empty, and without images no {type(logits).__name__} is returned.")
        logits = logits[:0]
        return Adaptation(logits, logits.clone(), note="the batch is empty", fell_back=True)

    def _plain_network(self, images: Tensor, result: Adaptation) -> nn.Module:
        plain = independent_copy(self.source)
        for name, parameter in plain.named_parameters():
            parameter.requires_grad_(self._requires_grad[name])
        if not result.fell_back:
            self._check_plain()
            with torch.no_grad():
                self._main(images)  # the last pass may have come before the last step
            for name, values in self._main.plain_values().items():
                write_tensors(plain.get_submodule(name), values)
        return plain

    def _adaptive(self, **settings: Any) -> AdaptiveNetwork:
        """Make a network that adapts, by the fields of `NetworkSettings`."""
        return AdaptiveNetwork(self.source, self._read_logits, NetworkSettings(**settings))

    def _all(self) -> list[Stateful]:
        return [self._main, *self._parts(), *([] if self.collapse is None else [self.collapse])]

    def _rebuild(self) -> None:
        # Tensors made in inference mode could not take part in a backward pass.
        with torch.inference_mode(False):
            self._guard = ParameterGuard(self.source)
            self._main = self._build()
            self._batches = 0
            self._reset()

    def _exchange(self, source: nn.Module) -> None:
        """Take another source model, or keep everything as it is if nothing can be built from it."""
        held, modules = dict(vars(self)), dict(self._modules)
        self.source = source.eval()
        try:
            self._rebuild()
        except BaseException:
            self._modules.update(modules)
            vars(self).update(held)
            raise

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Adaptor":
        with self._turn():
            saved = self._save(), self._batches
            self._exchange(linked_copy(self.source)._apply(fn))
            if saved[1]:  # batches to restore what was learned from
                self._pending = saved
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return a copy of everything, taken between two batches."""
        return self._copied({id(self): self})

    def _copied(self, memo: dict[int, Any]) -> dict[str, Any]:
        with self._turn():
            return copy.deepcopy(vars(self), memo)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Adaptor":
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__setstate__(self._copied(memo))
        return made


def _take_own_tensors(adaptor: Adaptor, state_dict: dict[str, Any], prefix: str, *_: object) -> None:
    """Let a parent module load a plain network's names, into tensors that the wrapped network does not share."""
    adaptor.source = independent_copy(adaptor.source).eval()
    for name in list(state_dict):
        if name.startswith(prefix):
            state_dict[f"{prefix}source.{name.removeprefix(prefix)}"] = state_dict.pop(name)


def _rebuild_after_loading(adaptor: Adaptor, _: object) -> None:
    adaptor._changes = ChangeDetector(None)
    adaptor._rebuild()

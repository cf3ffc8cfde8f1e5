"""Adaptor: learns from an unlabeled batch, predicts it, and keeps the promises that every method makes."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from domainadaptor.adaptation.adaptive_network import LayerReport
from domainadaptor.adaptation.batch import checked_batch
from domainadaptor.adaptation.change_detection import Watch
from domainadaptor.adaptation.copying import independent_copy, linked_copy, unwrap
from domainadaptor.adaptation.guard import CollapseGuard, Drift
from domainadaptor.adaptation.logits import OutputReader, finite, read_logits
from domainadaptor.adaptation.snapshot import ParameterGuard
from domainadaptor.errors import AdaptationError, UnsupportedNetwork
from domainadaptor.options import check_count


class Adaptation(NamedTuple):
    """What came of one batch."""

    logits: Tensor  # (N, K), after learning from the batch
    before: Tensor  # (N, K), same norms, before the first step: not the source network's logits
    loss: float | None  # of the last step, None if none was taken
    alpha: dict[str, float]  # layer -> weight of its source statistics; "layer[i]" for the uses of a reused layer
    note: str | None  # why it fell back, or which layers could not take part
    fell_back: bool = False  # the logits are the source network's own
    collapsed: bool = False  # because the guard went back to the source, and everything was forgotten


class Adaptor(nn.Module, ABC):
    """Learns from each unlabeled batch, then predicts it; the network that it was given is never changed.

    A subclass writes the abstract methods and calls `_rebuild` at the end of its `__init__`; locking, checking,
    restoring and falling back are done here. One that remembers batches also writes `_memory`, `_recall` and `_settle`.

    Args:
        network: Any trained network that the method can adapt.
        reset_every: After how many batches everything is forgotten; None never.
    """

    def __init__(self, network: nn.Module, *, reset_every: int | None = 1) -> None:
        super().__init__()
        if reset_every is not None:
            check_count("reset_every", reset_every, low=1)
        self.reset_every = reset_every
        self._batches = 0  # since everything was forgotten
        if isinstance(network, Adaptor):
            raise UnsupportedNetwork("this is an adaptor already; wrap the network that it was made from")
        plain = unwrap(network)
        self.output: OutputReader | None = None
        self.collapse: CollapseGuard | None = None  # goes back to the source where one is set
        self._watch = Watch(plain)
        self._requires_grad = {name: p.requires_grad for name, p in plain.named_parameters()}
        self._lock = threading.Lock()
        self._busy: int | None = None
        self.source = linked_copy(plain).eval()
        self.training = False
        self.register_load_state_dict_pre_hook(_take_own_tensors)
        self.register_load_state_dict_post_hook(_rebuild_after_loading)

    @abstractmethod
    def _prepare(self) -> None:
        """Builds what adapts from `self.source`; called again when that moves or is loaded anew."""

    @abstractmethod
    def _learn(self, images: Tensor) -> Adaptation:
        """Learns from a checked batch of one image or more and predicts it."""

    @abstractmethod
    def _plain_values(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Layer -> tensor name -> value, which make the plain network repeat the last prediction."""

    @abstractmethod
    def _forget(self) -> None:
        """Goes back to the source network."""

    def _memory(self) -> Any:
        """A copy of all that was learned so far, for `_recall`."""
        return None

    def _recall(self, memory: Any) -> None:
        """Goes back to what `_memory` gave; without memory, to the source."""
        self._forget()

    def _settle(self) -> None:
        """Lets go of what only the last pass needed."""
        if self.reset_every == 1:
            self._forget()

    def _runs_apart(self) -> bool:
        """Whether what adapts has weights of its own, so that no pass of it uses the source's parameters."""
        return False

    def _catch_up(self, images: Tensor) -> None:
        """Makes what `_plain_values` gives fit the weights as they are now."""

    def _learned(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Layer -> tensor name -> value, of what was learned and is remembered."""
        return {}

    def _drift(self) -> Drift:
        """How far what was learned is from the source."""
        return Drift(0.0, 1.0)

    @abstractmethod
    def layers(self) -> list[LayerReport]:
        """What becomes of each norm layer; a layer that is used more than once is known after the first batch."""

    def forward(self, images: Tensor) -> Tensor:
        """Adapts to a batch and returns its logits, (N, K)."""
        return self.adapt(images).logits

    def adapt(self, images: Tensor) -> Adaptation:
        """Adapts to a batch and predicts it.

        Raises:
            BadBatch: The images cannot be used.
            SourceChanged: The network was edited after it was wrapped.
        """
        with self._session(images) as result:
            return result

    def peek(self, images: Tensor, *, guarded: bool = True) -> Adaptation:
        """What would come of a batch if it were next; nothing of it is remembered.

        Args:
            images: The batch.
            guarded: Whether the guard, where there is one, may answer with the source network; otherwise it is asked
                nothing, and the answer is that of what was learned, however bad.

        Raises:
            BadBatch: The images cannot be used.
            SourceChanged: The network was edited after it was wrapped.
        """
        with self._checked(images) as images:
            if len(images) == 0:
                return self._empty(images)
            held = self._held()
            try:
                return self._try(images, guarded)
            finally:
                self._put_back(held)

    def adapted(self, images: Tensor) -> nn.Module:
        """A plain, independent network that holds what this batch taught: its eval output on it is the adapted one.

        Where a method predicts before its step, the network is that step ahead of the prediction.

        Raises:
            UnsupportedNetwork: A norm layer is used more than once, so that no plain layer can hold its statistics.
        """
        with self._session(images) as result:
            plain = independent_copy(self.source)
            for name, parameter in plain.named_parameters():
                parameter.requires_grad_(self._requires_grad[name])
            if not result.fell_back and len(images) > 0:
                self._catch_up(images)
                for name, values in self._plain_values().items():
                    _write(plain.get_submodule(name), values)
            return plain

    def unadapted(self, images: Tensor) -> Tensor:
        """The source network's own logits, (N, K)."""
        with self._checked(images) as images:
            return self._run_source(images) if len(images) > 0 else self._empty(images).logits

    def reset(self) -> None:
        """Forgets every batch: back to the source network."""
        with self._alone():
            self._forget_all()

    def train(self, mode: bool = True) -> "Adaptor":
        """Does nothing: dropout and stochastic depth stay off, and norm layers have no modes here."""
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The source network's, with what is remembered in its place; it loads into the plain network."""
        state = self.source.state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
        for layer, values in (self._learned() if self._batches else {}).items():
            for name, value in values.items():
                key = f"{prefix}{layer}.{name}" if layer else f"{prefix}{name}"
                if key in state:
                    state[key] = value.detach().to(state[key].dtype).clone()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Takes new source weights into tensors of its own; the network that was wrapped keeps its own."""
        with self._alone():
            fresh = independent_copy(self.source)
            result = fresh.load_state_dict(state_dict, strict=strict, assign=assign)
            self._exchange(linked_copy(fresh))  # assigned tensors may be someone's Parameter objects
            self._watch = Watch(None)
            return result

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Adaptor":
        with self._alone():
            held, batches = self._held(), self._batches
            self._exchange(linked_copy(self.source)._apply(fn))
            if batches:
                self._put_back(held)
                self._batches = batches
        return self

    def _exchange(self, source: nn.Module) -> None:
        """Another source, or the old one if nothing can be built from it."""
        held, self.source = self.source, source.eval()
        try:
            self._rebuild()
        except BaseException:
            self.source = held
            raise

    def _rebuild(self) -> None:
        # Tensors made in inference mode could not take part in a backward pass.
        with torch.inference_mode(False):
            self._guard = ParameterGuard(self.source)
            self._batches = 0
            if self.collapse is not None:
                self.collapse.reset()
            self._prepare()

    @contextmanager
    def _session(self, images: Tensor) -> Iterator[Adaptation]:
        """What came of a batch, while the adaptor still holds it."""
        with self._checked(images) as images:
            if len(images) == 0:
                yield self._empty(images)
                return
            held = self._held()
            try:
                result = self._try(images)
                yield result
                if result.collapsed:
                    self._forget_all()
                    return
                if result.fell_back:  # what misled it is not remembered
                    self._recall(held[0])
                self._count()
            except BaseException:
                self._put_back(held)
                raise

    def _try(self, images: Tensor, guarded: bool = True) -> Adaptation:
        """Learns from a batch and predicts it, with the source network where that went wrong."""
        if self.reset_every == 1:
            self._forget()
        result = self._learn(images)
        if not result.fell_back and not finite(result.logits):
            why = "the adapted logits are not finite (lr too large?)"
            result = self._fall_back(images, result.before, result.alpha, why)
        if guarded and (collapse := self._collapsed(images, result)):
            result = self._fall_back(images, result.before, result.alpha, collapse)._replace(collapsed=True)
        return result

    def _held(self) -> tuple[Any, Any]:
        """A copy of all that was learned and seen between batches, for `_put_back`."""
        learned = None if self.reset_every == 1 else self._memory()
        return learned, None if self.collapse is None else self.collapse.memory()

    def _put_back(self, held: tuple[Any, Any]) -> None:
        learned, seen = held
        self._recall(learned)
        if self.collapse is not None:
            self.collapse.recall(seen)

    def _collapsed(self, images: Tensor, result: Adaptation) -> str | None:
        """Why the guard wants to go back, if there is a guard and it does."""
        if self.collapse is None or result.fell_back:
            return None
        return self.collapse.look(result.logits, self._drift(), lambda: self._run_source(images))

    def _count(self) -> None:
        """One more batch; everything is forgotten when their number is full."""
        self._batches += 1
        if self.reset_every is not None and self._batches >= self.reset_every:
            self._forget_all()

    def _forget_all(self) -> None:
        self._forget()
        self._batches = 0
        if self.collapse is not None:
            self.collapse.reset()

    @contextmanager
    def _checked(self, images: Tensor) -> Iterator[Tensor]:
        """A batch that can be used, nobody else at work, and nothing of the pass left over, whatever happens."""
        with self._alone():
            self._watch.check()
            images = checked_batch(images, self.source.parameters())
            if self._runs_apart() and not self._guard.knows and len(images) > 0:
                with self._guard.guarding():  # which sees whether a pass writes to the source's parameters
                    self._run_source(images[:1])
            with self._guard.guarding():
                try:
                    yield images
                finally:
                    self._settle()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One caller at a time, outside of inference mode."""
        if self._busy == threading.get_ident():
            raise AdaptationError("an adaptor was called from inside its own call (by a hook?); call it afterwards")
        with self._lock, torch.inference_mode(False), torch.enable_grad():
            self._busy = threading.get_ident()
            try:
                yield
            finally:
                self._busy = None

    def _run(self, network: nn.Module, images: Tensor, copied: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        # A first layer that works in place would write to the user's images.
        output = network(images.clone() if copied is None else copied(images))
        return read_logits(output, self.output, len(images))

    def _run_source(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return self._run(self.source, images)

    def _fall_back(self, images: Tensor, before: Tensor, alpha: dict[str, float], why: str) -> Adaptation:
        """The source network's own answer, with the reason."""
        note = f"{why}; no step was kept and the logits are the source network's own"
        return Adaptation(self._run_source(images), before.detach(), None, alpha, note, fell_back=True)

    def _empty(self, images: Tensor) -> Adaptation:
        # Many networks cannot reshape zero images; one blank image tells the number of classes.
        logits = self._run_source(images.new_zeros((1, *images.shape[1:])))[:0]
        return Adaptation(logits, logits.clone(), None, {}, "the batch is empty", fell_back=True)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_lock"} | {"_busy": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._lock = threading.Lock()


def _take_own_tensors(adaptor: nn.Module, state_dict: dict[str, Any], prefix: str, *_: object) -> None:
    """For a parent module that loads: the names are the plain network's, and its tensors are not to be written to."""
    assert isinstance(adaptor, Adaptor)
    adaptor.source = independent_copy(adaptor.source).eval()
    for name in list(state_dict):
        if name.startswith(prefix):
            state_dict[f"{prefix}source.{name.removeprefix(prefix)}"] = state_dict.pop(name)


def _rebuild_after_loading(adaptor: nn.Module, _: object) -> None:
    assert isinstance(adaptor, Adaptor)
    adaptor._watch = Watch(None)
    adaptor._rebuild()


def _write(layer: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Gives a layer tensors of its own: tied ones hold one value, adapted ones may differ."""
    for name, value in values.items():
        if (parameter := layer._parameters.get(name)) is not None:
            layer._parameters[name] = nn.Parameter(value.clone(), requires_grad=parameter.requires_grad)
        elif layer._buffers.get(name) is not None:
            layer._buffers[name] = value.clone()

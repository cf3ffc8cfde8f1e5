"""Which weights of a training run are kept: the last, the best on source validation images, or SWAD's average."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from torch import Tensor, nn

from domainadaptor.lab.networks.statistics import reestimate_statistics
from domainadaptor.option_types import Count, NonNegative
from domainadaptor.options import check_choice, coerce_options

State = dict[str, Tensor]
T = TypeVar("T")


class ValidationScore(NamedTuple):
    """What the source validation images said at one moment of training."""

    step: int
    accuracy: float
    loss: float


class WeightSelection(ABC):
    """Watches a run and keeps weights of it."""

    def __init__(self, *, checks_per_epoch: Count = 1) -> None:
        self.checks_per_epoch = checks_per_epoch

    def after_step(self, module: nn.Module) -> None:  # noqa: B027
        """Sees the weights after every step."""

    @abstractmethod
    def after_check(self, module: nn.Module, check: ValidationScore) -> None:
        """Sees what the validation images say."""

    @abstractmethod
    def chosen(self) -> tuple[State, str]:
        """The weights that are kept, and where they come from in words."""

    def finish(self, network: nn.Module, batches: Iterable[T], run: Callable[[T], object]) -> None:  # noqa: B027
        """Called with the chosen weights loaded: whatever they need before they are used; `run` passes a batch."""

    @abstractmethod
    def resume_state(self) -> dict[str, Any]:
        """All that a later process needs to go on."""

    @abstractmethod
    def resume(self, state: dict[str, Any]) -> None:
        """Goes on from there."""


class LastWeights(WeightSelection):
    """The weights after the last step."""

    def __init__(self) -> None:
        super().__init__()
        self._state: State = {}
        self._step = 0

    def after_check(self, module: nn.Module, check: ValidationScore) -> None:
        """Keeps them."""
        self._state, self._step = _copied(module), check.step

    def chosen(self) -> tuple[State, str]:
        """The last ones."""
        return self._state, f"the last, after step {self._step}"

    def resume_state(self) -> dict[str, Any]:
        """The last so far."""
        return {"state": self._state, "step": self._step}

    def resume(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self._state, self._step = state["state"], state["step"]


class BestWeights(WeightSelection):
    """The weights with the highest accuracy on the source validation images; of equals, the earliest.

    Args:
        checks_per_epoch: Validations per epoch.
    """

    def __init__(self, *, checks_per_epoch: Count = 1) -> None:
        super().__init__(checks_per_epoch=checks_per_epoch)
        self._state: State = {}
        self._check = ValidationScore(0, -1.0, 0.0)

    def after_check(self, module: nn.Module, check: ValidationScore) -> None:
        """Keeps them if they are better."""
        if check.accuracy > self._check.accuracy:
            self._state, self._check = _copied(module), check

    def chosen(self) -> tuple[State, str]:
        """The best ones."""
        return self._state, f"best on source validation, {self._check.accuracy:.2f} % after step {self._check.step}"

    def resume_state(self) -> dict[str, Any]:
        """The best so far."""
        return {"state": self._state, "check": tuple(self._check)}

    def resume(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self._state, self._check = state["state"], ValidationScore(*state["check"])


@dataclass
class _Average:
    """The mean of the parameters seen so far; buffers belong to single steps, so the last ones are kept."""

    state: State = field(default_factory=dict)
    count: int = 0
    parameters: tuple[str, ...] = ()

    def add(self, module: nn.Module) -> None:
        """Takes in one more set of weights."""
        now = _copied(module)
        self.merge(_Average(now, 1, tuple(name for name, _ in module.named_parameters())))

    def merge(self, later: "_Average") -> None:
        """The mean over both, each by its number of steps."""
        if not self.count:
            self.state, self.count, self.parameters = later.state, later.count, later.parameters
            return
        self.count += later.count
        for name, value in later.state.items():
            if name in self.parameters:
                self.state[name] += (value - self.state[name]) * (later.count / self.count)
            else:
                self.state[name].copy_(value)


class _Segment(NamedTuple):
    """The steps between two checks: their mean, and what the second check said."""

    average: _Average
    check: ValidationScore


class SWAD(WeightSelection):
    """Average the weights over the valley of the validation loss (SWAD). Cha et al., NeurIPS 2021.

    Never reached: the last weights. Running statistics belong to single steps, so they are estimated anew for the mean.
    The rule is the paper's; its authors' program also takes in some segments of before the valley whose loss is low
    enough, and without a valley ends with the mean of the last segment.

    Args:
        converge: The valley begins when the oldest of this many consecutive losses is the lowest.
        tolerance: The valley ends when the lowest of this many latest losses exceeds the threshold.
        ratio: The threshold is (1 + ratio) times the mean of the losses at the beginning of the valley.
        checks_per_epoch: Validations per epoch.
    """

    def __init__(
        self, *, converge: Count = 3, tolerance: Count = 6, ratio: NonNegative = 0.3, checks_per_epoch: Count = 4
    ) -> None:
        super().__init__(checks_per_epoch=checks_per_epoch)
        self.converge, self.tolerance, self.ratio = converge, tolerance, ratio
        self._current = _Average()
        self._recent: deque[_Segment] = deque(maxlen=converge)  # before the valley: what it may begin with
        self._waiting: deque[_Segment] = deque()  # in it: not averaged before it is known that it goes on
        self._valley: _Average | None = None
        self._began = self._ended = self._threshold = 0.0
        self._done = False
        self._last: State = {}

    def after_step(self, module: nn.Module) -> None:
        """Takes the weights into the mean of the current segment."""
        if not self._done:
            self._current.add(module)

    def after_check(self, module: nn.Module, check: ValidationScore) -> None:
        """Closes the segment and looks whether the valley begins or ends with it."""
        if self._done:
            return
        self._last = _copied(module)
        segment, self._current = _Segment(self._current, check), _Average()
        if self._valley is None:
            self._recent.append(segment)
            self._look_for_beginning()
        else:
            self._waiting.append(segment)
            self._look_for_end()

    def _look_for_beginning(self) -> None:
        if len(self._recent) < self.converge:
            return
        losses = [segment.check.loss for segment in self._recent]
        if min(losses) < losses[0]:
            return
        first, *rest = self._recent
        self._valley = first.average
        self._began = self._ended = first.check.step
        self._threshold = sum(losses) / len(losses) * (1 + self.ratio)
        self._waiting.extend(rest)
        self._recent.clear()

    def _look_for_end(self) -> None:
        while len(self._waiting) >= self.tolerance:  # more than one at first, where the valley began with many
            if self._is_too_high():
                self._done = True
                self._waiting.clear()
                return
            self._take(self._waiting.popleft())

    def _is_too_high(self) -> bool:
        """Whether the next segments are all above the threshold."""
        return min(segment.check.loss for segment in islice(self._waiting, self.tolerance)) > self._threshold

    def _take(self, segment: _Segment) -> None:
        assert self._valley is not None
        self._valley.merge(segment.average)
        self._ended = segment.check.step

    def chosen(self) -> tuple[State, str]:
        """The mean over the valley, or the last weights if the loss never stopped falling."""
        if self._valley is None:
            return self._last, "the last: SWAD saw no valley of the validation loss"
        # The run ended inside the valley: what is left of it.
        while self._waiting and not self._is_too_high():
            self._take(self._waiting.popleft())
        steps = f"steps {self._began:.0f} to {self._ended:.0f}"
        return self._valley.state, f"SWAD's mean over {self._valley.count} weights, segments ending at {steps}"

    def finish(self, network: nn.Module, batches: Iterable[T], run: Callable[[T], object]) -> None:
        """Running statistics of the mean."""
        reestimate_statistics(network, batches, run)

    def resume_state(self) -> dict[str, Any]:
        """Everything seen so far."""

        def packed(segments: Iterable[_Segment]) -> list[Any]:
            return [(*_parts(s.average), tuple(s.check)) for s in segments]

        valley = None if self._valley is None else _parts(self._valley)
        return {
            "current": _parts(self._current),
            "recent": packed(self._recent),
            "waiting": packed(self._waiting),
            "valley": valley,
            "marks": (self._began, self._ended, self._threshold, self._done),
            "last": self._last,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Goes on from there."""

        def unpacked(segments: list[Any]) -> Iterable[_Segment]:
            return (_Segment(_Average(*parts), ValidationScore(*check)) for *parts, check in segments)

        self._current = _Average(*state["current"])
        self._recent = deque(unpacked(state["recent"]), maxlen=self.converge)
        self._waiting = deque(unpacked(state["waiting"]))
        self._valley = None if state["valley"] is None else _Average(*state["valley"])
        self._began, self._ended, self._threshold, self._done = state["marks"]
        self._last = state["last"]


SELECTIONS: dict[str, type[WeightSelection]] = {"best": BestWeights, "last": LastWeights, "swad": SWAD}


def make_selection(name: str, options: Mapping[str, Any] | None = None) -> WeightSelection:
    """The way of choosing weights of that name.

    Raises:
        BadOption: There is none, or it has no such option.
    """
    return find_selection(name)(**coerce_options(find_selection(name), options or {}, name))


def find_selection(name: str) -> type[WeightSelection]:
    """Return the class of that name; the keyword-only parameters of its constructor are the options.

    Raises:
        BadOption: There is none.
    """
    check_choice("select", name, SELECTIONS)
    return SELECTIONS[name]


def _parts(average: _Average) -> tuple[Any, ...]:
    return average.state, average.count, average.parameters


def _copied(module: nn.Module) -> State:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}

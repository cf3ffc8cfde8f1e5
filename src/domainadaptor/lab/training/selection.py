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
    """Scores on the source validation images after a step."""

    step: int
    accuracy: float
    loss: float


class WeightSelection(ABC):
    """Watches a run and keeps weights of it; keyword-only parameters of a constructor are its options."""

    def __init__(self, *, checks_per_epoch: Count = 1) -> None:
        self.checks_per_epoch = checks_per_epoch

    def after_step(self, module: nn.Module) -> None:  # noqa: B027
        """See the weights after a step."""

    @abstractmethod
    def after_check(self, module: nn.Module, check: ValidationScore) -> None:
        """See the weights and their validation scores."""

    @abstractmethod
    def chosen(self) -> tuple[State, str]:
        """Return the selected weights, and a description of where they come from."""

    def finish(self, network: nn.Module, batches: Iterable[T], run: Callable[[T], object]) -> None:  # noqa: B027
        """Prepare the selected weights, now loaded, for use; `run` passes a batch through the network."""

    @abstractmethod
    def resume_state(self) -> dict[str, Any]:
        """Return everything that a later process needs to resume."""

    @abstractmethod
    def resume(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""


class LastWeights(WeightSelection):
    """The weights after the last step."""

    def __init__(self) -> None:
        super().__init__()
        self._state: State = {}
        self._step = 0

    def after_check(self, module: nn.Module, check: ValidationScore) -> None:
        """Keep the weights."""
        self._state, self._step = _copied(module), check.step

    def chosen(self) -> tuple[State, str]:
        """Return the last weights."""
        return self._state, f"the last, after step {self._step}"

    def resume_state(self) -> dict[str, Any]:
        """Return the last weights so far."""
        return {"state": self._state, "step": self._step}

    def resume(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
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
        """Keep the weights if they are better."""
        if check.accuracy > self._check.accuracy:
            self._state, self._check = _copied(module), check

    def chosen(self) -> tuple[State, str]:
        """Return the best weights."""
        return self._state, f"best on source validation, {self._check.accuracy:.2f} % after step {self._check.step}"

    def resume_state(self) -> dict[str, Any]:
        """Return the best weights so far."""
        return {"state": self._state, "check": tuple(self._check)}

    def resume(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
        self._state, self._check = state["state"], ValidationScore(*state["check"])


@dataclass
class _Average:
    """The mean of parameters; buffers belong to single steps, so the last ones are kept."""

    state: State = field(default_factory=dict)
    count: int = 0
    parameters: tuple[str, ...] = ()

    def add(self, module: nn.Module) -> None:
        """Include the weights of a module."""
        self.merge(_Average(_copied(module), 1, tuple(name for name, _ in module.named_parameters())))

    def merge(self, later: "_Average") -> None:
        """Include another mean, weighted by its number of steps."""
        if not self.count:
            self.state, self.count, self.parameters = later.state, later.count, later.parameters
            return
        self.count += later.count
        for name, value in later.state.items():
            if name in self.parameters:
                self.state[name] += (value - self.state[name]) * (later.count / self.count)
            else:
                self.state[name].copy_(value)

    def parts(self) -> tuple[Any, ...]:
        return self.state, self.count, self.parameters


class _Segment(NamedTuple):
    """The steps between two validations: the mean of their weights, and the scores at the end."""

    average: _Average
    check: ValidationScore


class SWAD(WeightSelection):
    """Averages the weights of all steps in the valley of the validation loss. Cha et al., NeurIPS 2021.

    Without a valley, the last weights are kept. Running statistics belong to single steps, so they are re-estimated for
    the mean. The rule is the paper's; the authors' program also includes some segments before the valley whose loss is
    low enough, and without a valley ends with the mean of the last segment.

    Args:
        converge: The valley begins when the lowest of this many consecutive losses is the first of them.
        tolerance: The valley ends when the lowest of this many consecutive losses is too high.
        ratio: Too high is above (1 + ratio) times the mean of the losses at the beginning.
        checks_per_epoch: Validations per epoch.
    """

    def __init__(
        self,
        *,
        converge: Count = 3,
        tolerance: Count = 6,
        ratio: NonNegative = 0.3,
        checks_per_epoch: Count = 4,
    ) -> None:
        super().__init__(checks_per_epoch=checks_per_epoch)
        self.converge, self.tolerance, self.ratio = converge, tolerance, ratio
        self._current = _Average()
        self._recent: deque[_Segment] = deque(maxlen=converge)  # before the valley: candidates for its beginning
        self._waiting: deque[_Segment] = deque()  # in the valley: not averaged until it is known to continue
        self._valley: _Average | None = None
        self._began = self._ended = self._threshold = 0.0
        self._done = False
        self._last: State = {}

    def after_step(self, module: nn.Module) -> None:
        """Include the weights in the mean of the current segment."""
        if not self._done:
            self._current.add(module)

    def after_check(self, module: nn.Module, check: ValidationScore) -> None:
        """Close the segment, and find out whether the valley begins or ends with it."""
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
        while len(self._waiting) >= self.tolerance:  # more than one at first, if the valley began with many
            if self._is_too_high():
                self._done = True
                self._waiting.clear()
                return
            self._take(self._waiting.popleft())

    def _is_too_high(self) -> bool:
        """Return whether the next segments are all above the threshold."""
        return min(segment.check.loss for segment in islice(self._waiting, self.tolerance)) > self._threshold

    def _take(self, segment: _Segment) -> None:
        assert self._valley is not None
        self._valley.merge(segment.average)
        self._ended = segment.check.step

    def chosen(self) -> tuple[State, str]:
        """Return the mean over the valley, or the last weights if the loss never stopped falling."""
        if self._valley is None:
            return self._last, "the last: SWAD saw no valley of the validation loss"
        while self._waiting and not self._is_too_high():  # the run ended in the valley
            self._take(self._waiting.popleft())
        steps = f"steps {self._began:.0f} to {self._ended:.0f}"
        return self._valley.state, f"SWAD's mean over {self._valley.count} weights, segments ending at {steps}"

    def finish(self, network: nn.Module, batches: Iterable[T], run: Callable[[T], object]) -> None:
        """Re-estimate the running statistics."""
        reestimate_statistics(network, batches, run)

    def resume_state(self) -> dict[str, Any]:
        """Return everything seen so far."""

        def packed(segments: Iterable[_Segment]) -> list[Any]:
            return [(*s.average.parts(), tuple(s.check)) for s in segments]

        return {
            "current": self._current.parts(),
            "recent": packed(self._recent),
            "waiting": packed(self._waiting),
            "valley": None if self._valley is None else self._valley.parts(),
            "marks": (self._began, self._ended, self._threshold, self._done),
            "last": self._last,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""

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
    """Build the selection of that name.

    Raises:
        BadOption: There is none, or it does not take the options.
    """
    return find_selection(name)(**coerce_options(find_selection(name), options or {}, name))


def find_selection(name: str) -> type[WeightSelection]:
    """Return the class of that name; the keyword-only parameters of its constructor are the options.

    Raises:
        BadOption: There is none.
    """
    check_choice("select", name, SELECTIONS)
    return SELECTIONS[name]


def _copied(module: nn.Module) -> State:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}

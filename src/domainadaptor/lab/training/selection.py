"""Which weights of a training run are kept: the last, the best on source validation images, or SWAD's average."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypedDict, TypeVar

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
    """Watches a run and keeps weights of it; keyword-only parameters of a constructor are its options.

    All attributes are tensors and plain values, and are saved to resume.
    """

    def __init__(self, *, checks_per_epoch: Count = 1) -> None:
        self.checks_per_epoch = checks_per_epoch
        self.state: State = {}
        self.step = 0

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

    def resume_state(self) -> dict[str, Any]:
        """Return everything that a later process needs to resume."""
        return dict(vars(self))

    def resume(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
        vars(self).update(state)


class LastWeights(WeightSelection):
    """The weights after the last step."""

    def __init__(self) -> None:
        super().__init__()

    def after_check(self, module: nn.Module, check: ValidationScore) -> None:
        """Keep the weights."""
        self.state, self.step = _copied(module), check.step

    def chosen(self) -> tuple[State, str]:
        """Return the last weights."""
        return self.state, f"the last, after step {self.step}"


class BestWeights(WeightSelection):
    """The weights with the highest accuracy on the source validation images; of equals, the earliest.

    Args:
        checks_per_epoch: Validations per epoch.
    """

    def __init__(self, *, checks_per_epoch: Count = 1) -> None:
        super().__init__(checks_per_epoch=checks_per_epoch)
        self.accuracy = -1.0

    def after_check(self, module: nn.Module, check: ValidationScore) -> None:
        """Keep the weights if they are better."""
        if check.accuracy > self.accuracy:
            self.state, self.step, self.accuracy = _copied(module), check.step, check.accuracy

    def chosen(self) -> tuple[State, str]:
        """Return the best weights."""
        return self.state, f"best on source validation, {self.accuracy:.2f} % after step {self.step}"


class _Segment(TypedDict):
    """The steps between two validations: the mean of their weights, their number, and the scores at the end."""

    state: State
    count: int
    step: int
    loss: float


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
        self, *, converge: Count = 3, tolerance: Count = 6, ratio: NonNegative = 0.3, checks_per_epoch: Count = 4
    ) -> None:
        super().__init__(checks_per_epoch=checks_per_epoch)
        self.converge, self.tolerance, self.ratio = converge, tolerance, ratio
        self.current: _Segment | None = None
        self.recent: list[_Segment] = []  # before the valley: candidates for its beginning
        self.valley: _Segment | None = None
        self.waiting: list[_Segment] = []  # in the valley: not averaged until it is known to continue
        self.threshold = 0.0
        self.done = False
        self.parameters: list[str] = []

    def after_step(self, module: nn.Module) -> None:
        """Include the weights in the mean of the current segment."""
        if self.done:
            return
        self.parameters = [name for name, _ in module.named_parameters()]
        now: _Segment = {"state": _copied(module), "count": 1, "step": 0, "loss": 0.0}
        if self.current is None:
            self.current = now
        else:
            self._merge(self.current, now)

    def after_check(self, module: nn.Module, check: ValidationScore) -> None:
        """Close the segment, and find out whether the valley begins or ends with it."""
        if self.done or self.current is None:
            return
        self.state = _copied(module)
        segment, self.current = self.current, None
        segment["step"], segment["loss"] = check.step, check.loss
        if self.valley is None:
            self.recent = [*self.recent, segment][-self.converge :]
            losses = [segment["loss"] for segment in self.recent]
            if len(losses) == self.converge and min(losses) == losses[0]:
                self.threshold = sum(losses) / len(losses) * (1 + self.ratio)
                self.valley, *self.waiting = self.recent
                self.step, self.recent = self.valley["step"], []
            return
        self.waiting.append(segment)
        while len(self.waiting) >= self.tolerance:  # more than one at first, if the valley began with many
            self.done = not self._extend(self.valley)

    def _extend(self, valley: _Segment) -> bool:
        """Add the next segment to the valley; return False if it and those after it are above the threshold."""
        if min(segment["loss"] for segment in self.waiting[: self.tolerance]) > self.threshold:
            self.waiting = []
            return False
        later = self.waiting.pop(0)
        self._merge(valley, later)
        self.step = later["step"]
        return True

    def _merge(self, mean: _Segment, later: _Segment) -> None:
        """Include another mean, by its number of steps; buffers belong to single steps, so the last are kept."""
        mean["count"] += later["count"]
        for name, value in later["state"].items():
            held = mean["state"][name]
            if name in self.parameters:
                held += (value - held) * (later["count"] / mean["count"])
            else:
                held.copy_(value)

    def chosen(self) -> tuple[State, str]:
        """Return the mean over the valley, or the last weights if the loss never stopped falling."""
        if self.valley is None:
            return self.state, "the last: SWAD saw no valley of the validation loss"
        while self.waiting and self._extend(self.valley):  # the run ended in the valley
            pass
        steps = f"steps {self.valley['step']} to {self.step}"
        return self.valley["state"], f"SWAD's mean over {self.valley['count']} weights, segments ending at {steps}"

    def finish(self, network: nn.Module, batches: Iterable[T], run: Callable[[T], object]) -> None:
        """Re-estimate the running statistics."""
        reestimate_statistics(network, batches, run)


SELECTIONS: dict[str, type[WeightSelection]] = {"best": BestWeights, "last": LastWeights, "swad": SWAD}


def make_selection(name: str, options: Mapping[str, Any] | None = None) -> WeightSelection:
    """Build the selection of that name."""
    return find_selection(name)(**coerce_options(find_selection(name), options or {}, name))


def find_selection(name: str) -> type[WeightSelection]:
    """Return the class of that name; the keyword-only parameters of its constructor are the options."""
    check_choice("select", name, SELECTIONS)
    return SELECTIONS[name]


def _copied(module: nn.Module) -> State:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}

"""LearnedLoss: the loss with which ARM trains and adapts. Zhang et al., NeurIPS 2021."""

from torch import Tensor, nn

__all__: list[str] = []  # not a task: it has no examples


class LearnedLoss(nn.Module):
    """A small network that maps the logits of each image to a number; the loss is the norm of all numbers."""

    def __init__(self, classes: int, hidden: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(classes, hidden), nn.ReLU()),
            *(nn.Linear(hidden, hidden), nn.ReLU()),
            *(nn.Linear(hidden, hidden), nn.ReLU()),
            nn.Linear(hidden, 1),
        )

    def forward(self, logits: Tensor) -> Tensor:
        """Return one number for the batch."""
        return self.layers(logits).norm()  # type: ignore[no-any-return]

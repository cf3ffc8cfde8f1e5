"""A learned loss on logits, which ARM trains and adapts with. Zhang et al., NeurIPS 2021."""

from torch import Tensor, nn

__all__: list[str] = []  # no puzzle: it has no examples of its own


class LearnedLoss(nn.Module):
    """A small network from an image's logits to a number; the loss is the norm of all images' numbers."""

    def __init__(self, classes: int, hidden: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(classes, hidden), nn.ReLU()),
            *(nn.Linear(hidden, hidden), nn.ReLU()),
            *(nn.Linear(hidden, hidden), nn.ReLU()),
            nn.Linear(hidden, 1),
        )

    def forward(self, logits: Tensor) -> Tensor:
        """One number for the whole batch."""
        return self.layers(logits).norm()  # type: ignore[no-any-return]

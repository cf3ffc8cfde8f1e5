"""One gradient step that is taken only if its loss and gradient are finite."""

from torch import Tensor, nn

from domainadaptor.adaptation.logits import finite
from domainadaptor.adaptation.state import KeptOptimizer
from domainadaptor.adaptation.step import gradients_of


def take_step(loss: Tensor, learnable: list[nn.Parameter], optimizer: KeptOptimizer) -> str | None:
    """Steps down a loss; or says why not, and leaves everything as it is."""
    if not finite(loss):
        return f"the loss is not finite ({loss.item()})"
    gradients = gradients_of(loss, learnable)
    if not finite(*(gradient for gradient in gradients if gradient is not None)):
        return "the gradient is not finite"
    made = optimizer.over(learnable)
    made.step()
    made.zero_grad(set_to_none=True)
    return None

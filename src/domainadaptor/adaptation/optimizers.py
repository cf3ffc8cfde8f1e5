"""The optimizers that methods offer by name."""

from functools import partial

from torch.optim import SGD, Adam

from domainadaptor.adaptation.state import OptimizerFactory
from domainadaptor.options import check_choice, check_number

OPTIMIZERS = ("sgd", "adam")
_LARGEST = 3.4e38  # of float32; torch refuses a larger step without saying why


def optimizer_called(name: str, *, lr: float, momentum: float) -> OptimizerFactory:
    """SGD or Adam, whose first average has the momentum.

    Raises:
        BadOption: There is no such optimizer, or a number is out of range.
    """
    check_choice("optimizer", name, OPTIMIZERS)
    check_number("lr", lr, low=0, high=_LARGEST)
    check_number("momentum", momentum, low=0, high=0.9999)
    if name == "sgd":
        return partial(SGD, lr=float(lr), momentum=float(momentum))
    return partial(Adam, lr=float(lr), betas=(float(momentum), 0.999))

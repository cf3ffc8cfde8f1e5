"""A head that was trained beside the network, as a fixed function."""

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from domainadaptor.errors import BadOption


class TrainedHead:
    """Computes as the trained module does, wherever its input is, and never learns."""

    def __init__(self, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        self.module = module  # its tensors do not matter
        with torch.inference_mode(False):  # such tensors could not take part in a backward pass
            self._tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def __call__(self, values: Tensor) -> Tensor:
        """What the module answers, in the precision of what it is given."""
        own = {n: t.to(values) if t.is_floating_point() else t.to(values.device) for n, t in self._tensors.items()}
        answer: Tensor = functional_call(self.module, own, (values,))
        return answer


def trained_head(option: str, given: object, make: Callable[[], nn.Module], command: str, name: str) -> TrainedHead:
    """The head that an option holds: a module, or the tensors of one, which `make` makes.

    Raises:
        BadOption: There is none, or it does not fit.
    """
    remedy = (
        f"train a network with it (`{command}`): evaluate and predict take it from such a checkpoint, Python from "
        f"{option}=load_checkpoint(path).heads[{name!r}]"
    )
    if given is None:
        raise BadOption(f"this method needs a head that was trained with the network: {remedy}")
    with torch.device("meta"):  # random values would be drawn from the user's generator
        module = make().eval()
    if isinstance(given, nn.Module):
        if type(given) is not type(module):
            return TrainedHead(copy.deepcopy(given).eval(), given.state_dict())
        given = given.state_dict()
    if not isinstance(given, Mapping) or not all(isinstance(t, Tensor) for t in given.values()):
        raise BadOption(f"{option}={type(given).__name__}: expected a trained head or its tensors by name; {remedy}")
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in given.items()}
    if expected != found:
        raise BadOption(f"{option} does not fit the network: expected {expected}, got {found}; {remedy}")
    return TrainedHead(module, given)

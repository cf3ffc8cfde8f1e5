"""A head that was trained together with the network, as a fixed function."""

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from domainadaptor.errors import BadOption


class TrainedHead:
    """Call a trained module with fixed tensors, on the device and in the precision of its input."""

    def __init__(self, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        self.module = module  # only its structure is used
        with torch.inference_mode(False):  # inference tensors cannot take part in a backward pass
            self._tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def __call__(self, values: Tensor) -> Tensor:
        """Return the module's output in the precision of its input."""
        own = {n: t.to(values) if t.is_floating_point() else t.to(values.device) for n, t in self._tensors.items()}
        output: Tensor = functional_call(self.module, own, (values,))
        return output


def trained_head(option: str, given: object, make: Callable[[], nn.Module], command: str, name: str) -> TrainedHead:
    """Return the head that an option holds: a module, or the tensors of a module that `make` builds.

    Raises:
        BadOption: No head was given, or it does not fit the network.
    """
    remedy = (
        f"train a network with it (`{command}`): evaluate and predict take it from such a checkpoint, Python from "
        f"{option}=load_checkpoint(path).heads[{name!r}]"
    )
    if given is None:
        raise BadOption(f"this method needs a head that was trained with the network: {remedy}")
    with torch.device("meta"):  # drawing initial values would advance the user's random generator
        module = make().eval()
    if isinstance(given, nn.Module):
        if type(given) is not type(module):
            return TrainedHead(copy.deepcopy(given).eval(), given.state_dict())
        given = given.state_dict()
    if not isinstance(given, Mapping) or not all(isinstance(t, Tensor) for t in given.values()):
        raise BadOption(f"{option}={type(given).__name__}: expected a trained head or its state dict; {remedy}")
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in given.items()}
    if expected != found:
        raise BadOption(f"{option} does not fit the network: expected {expected}, got {found}; {remedy}")
    return TrainedHead(module, given)

"""Copies of a network: linked to the user's tensors for adapting, or independent for handing out."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from domainadaptor.errors import UnsupportedNetwork

# By class name, and the child that holds the network: importing torch.compile's own class takes a second.
_WRAPPERS = {"DataParallel": "module", "DistributedDataParallel": "module", "OptimizedModule": "_orig_mod"}


def unwrap(network: nn.Module) -> nn.Module:
    """The network inside DataParallel, DistributedDataParallel and torch.compile.

    Raises:
        UnsupportedNetwork: It is not a network whose layers can be exchanged.
    """
    if not isinstance(network, nn.Module):
        raise UnsupportedNetwork(f"expected a torch.nn.Module, got a {type(network).__name__}; {_instead(network)}")
    while (child := _wrapped(network)) is not None:
        network = child
    if isinstance(network, torch.jit.ScriptModule):
        raise UnsupportedNetwork(
            "a TorchScript network cannot be adapted: its layers are fixed; pass the Python network"
        )
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        if is_lazy(tensor):
            raise UnsupportedNetwork(
                f"{name!r} is not initialized (a lazy layer): run one batch through the network first"
            )
        if tensor.is_meta:
            raise UnsupportedNetwork(f"{name!r} is on the meta device and holds no values: load the weights first")
    return network


def _instead(given: object) -> str:
    if isinstance(given, Mapping):
        return "that looks like weights: load them into the network first, network.load_state_dict(weights)"
    if isinstance(given, type) or callable(given):
        return "that looks like what makes a network: call it first"
    return "build the network and load its weights first"


def linked_copy(network: nn.Module, replace: Mapping[nn.Module, nn.Module] | None = None) -> nn.Module:
    """A copy whose parameters are new objects on the same storage; buffers, which a forward may write to, are new."""
    return _copied(network, parameter=_on_same_storage, replace=replace or {})


def twin(network: nn.Module, replace: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """A copy that holds the very same parameters, with some layers replaced wherever they are referred to."""
    return _copied(network, parameter=lambda p: p, replace=replace)


def independent_copy(network: nn.Module) -> nn.Module:
    """A copy that shares nothing."""
    return _copied(network, parameter=lambda p: nn.Parameter(p.detach().clone(), requires_grad=False), replace={})


def _copied(
    network: nn.Module,
    *,
    parameter: Callable[[nn.Parameter], nn.Parameter],
    replace: Mapping[nn.Module, nn.Module],
) -> nn.Module:
    # deepcopy takes what it finds in the memo instead of copying it: the one place where tensors are exchanged,
    # layers replaced and wrappers removed, wherever the network refers to them.
    memo: dict[int, object] = {id(old): new for old, new in replace.items()}
    with torch.inference_mode(False):
        for module in network.modules():
            for p in module._parameters.values():
                if p is not None and id(p) not in memo:
                    memo[id(p)] = parameter(p)
            for tensor in _other_tensors(module):
                memo.setdefault(id(tensor), tensor.detach().clone())
            for hook in _hooks(module):
                memo[id(hook)] = hook
        try:
            for module in reversed(list(network.modules())):
                if (child := _wrapped(module)) is not None:
                    memo[id(module)] = _Transparent(_WRAPPERS[type(module).__name__], copy.deepcopy(child, memo))
            return copy.deepcopy(network, memo)
        except Exception as error:
            raise UnsupportedNetwork(
                f"{type(network).__name__} cannot be copied, and adaptation works on a copy: {error}; "
                "remove the attribute that cannot be deep-copied"
            ) from error


def _on_same_storage(p: nn.Parameter) -> nn.Parameter:
    # Tensors made in inference mode cannot take part in a backward pass.
    data = p.clone() if p.is_inference() else p.detach()
    return nn.Parameter(data, requires_grad=False)


def _other_tensors(module: nn.Module) -> Iterator[Tensor]:
    """Buffers, and tensors kept as plain attributes, which deepcopy refuses when they have a gradient function."""
    yield from (buffer for buffer in module._buffers.values() if buffer is not None)
    yield from (value for value in vars(module).values() if isinstance(value, Tensor))


def _hooks(module: nn.Module) -> Iterator[object]:
    """Hooks belong to the user: the copy calls the same ones."""
    for name, hooks in vars(module).items():
        if name.endswith("_hooks") and isinstance(hooks, dict):
            yield from hooks.values()


def _wrapped(module: nn.Module) -> nn.Module | None:
    kind = type(module)
    child = _WRAPPERS.get(kind.__name__) if kind.__module__.startswith("torch.") else None
    return None if child is None else module._modules[child]


class _Transparent(nn.Module):
    """Keeps the place and the state-dict names of a wrapper inside a network, and calls what it wrapped."""

    def __init__(self, name: str, child: nn.Module) -> None:
        super().__init__()
        self._child_name = name
        self._modules[name] = child

    def forward(self, *args: object, **kwargs: object) -> object:
        return self._modules[self._child_name](*args, **kwargs)  # type: ignore[misc]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules[self.__dict__["_child_name"]], name)

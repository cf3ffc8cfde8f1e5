"""Copies of a network: linked copies share the user's tensors, independent ones share nothing."""

import copy
from collections.abc import Callable, Iterator, Mapping
from types import CellType, FunctionType, MappingProxyType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from domainadaptor.errors import UnsupportedNetwork

# Class name -> child that holds the network. Importing the class of torch.compile would take a second.
_WRAPPERS = {"DataParallel": "module", "DistributedDataParallel": "module", "OptimizedModule": "_orig_mod"}


def unwrap(network: nn.Module) -> nn.Module:
    """Return the network inside DataParallel, DistributedDataParallel and torch.compile.

    Raises:
        UnsupportedNetwork: It is not a network whose layers can be replaced.
    """
    if not isinstance(network, nn.Module):
        raise UnsupportedNetwork(f"Expected a torch.nn.Module, got a {type(network).__name__}. {_remedy(network)}")
    while (child := _wrapped(network)) is not None:
        network = child
    if any(isinstance(module, torch.jit.ScriptModule) for module in network.modules()):
        raise UnsupportedNetwork(
            "TorchScript modules cannot be adapted because their layers are fixed. Pass the Python network."
        )
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        if is_lazy(tensor):
            raise UnsupportedNetwork(f"{name!r} is a lazy layer's. Run one batch through the network first.")
        if tensor.is_meta:
            raise UnsupportedNetwork(f"{name!r} is on the meta device and has no values. Load the weights first.")
        if isinstance(tensor, nn.Parameter) and tensor.is_floating_point() and tensor.itemsize == 1:
            raise UnsupportedNetwork(
                f"{name!r} is {tensor.dtype}, in which nothing is computed. Use network.bfloat16()."
            )
    return network


def _remedy(given: object) -> str:
    if isinstance(given, Mapping):
        return "It looks like a state dict: load it first with network.load_state_dict(weights)."
    if callable(given):
        return "It looks like a function or class that makes a network: call it first."
    return "Build the network and load its weights first."


def linked_copy(network: nn.Module) -> nn.Module:
    """Return a copy that shares the storage of parameters. Buffers, which a forward may write to, are copied."""
    return _copy(network, _on_same_storage)


def twin(network: nn.Module, replace: Mapping[nn.Module, nn.Module], private: bool = False) -> nn.Module:
    """Return a copy with some layers replaced, and the same parameters or, if `private`, copies of them."""
    return _copy(network, _cloned if private else lambda p: p, replace)


def independent_copy(network: nn.Module) -> nn.Module:
    """Return a copy that shares nothing."""
    return _copy(network, _cloned)


def write_tensors(layer: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Give a layer tensors of its own: tied ones hold one value, adapted ones may differ."""
    for name, value in values.items():
        if (parameter := layer._parameters.get(name)) is not None:
            layer._parameters[name] = nn.Parameter(value.clone(), requires_grad=parameter.requires_grad)
        elif layer._buffers.get(name) is not None:
            layer._buffers[name] = value.clone()


def _cloned(p: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(p.detach().clone(), requires_grad=False)


def _copy(
    network: nn.Module,
    parameter: Callable[[nn.Parameter], nn.Parameter],
    replace: Mapping[nn.Module, nn.Module] = MappingProxyType({}),
) -> nn.Module:
    # deepcopy uses what the memo holds instead of copying it. So the memo exchanges tensors, replaces layers and
    # removes wrappers wherever the network refers to them.
    memo: dict[int, Any] = {id(old): new for old, new in replace.items()}
    modules = list(network.modules())
    with torch.inference_mode(False):
        for module in modules:
            for p in module._parameters.values():
                if p is not None and id(p) not in memo:
                    memo[id(p)] = parameter(p)
            for tensor in _other_tensors(module):
                memo.setdefault(id(tensor), tensor.detach().clone())
        functions = [f for module in modules for f in _functions(module) if isinstance(f, FunctionType)]
        rebound = {id(f): _with_empty_cells(f) for f in functions if _holds_a_module(f)}
        memo |= rebound
        for hook in (f for module in modules for f in _functions(module)):
            if id(hook) not in memo and not _is_method_of_a_module(hook):
                memo[id(hook)] = hook  # the copy calls the user's own hook
        try:
            for module in reversed(modules):
                if (child := _wrapped(module)) is not None:
                    memo[id(module)] = _Transparent(_WRAPPERS[type(module).__name__], copy.deepcopy(child, memo))
            result = copy.deepcopy(network, memo)
            for old, new in replace.items():
                vars(new).update({name: copy.deepcopy(vars(old)[name], memo) for name in vars(old) if "_hook" in name})
            for function in functions:
                if id(function) in rebound:
                    _fill_cells(function, rebound[id(function)], memo)
        except Exception as error:
            raise UnsupportedNetwork(
                f"{type(network).__name__} cannot be copied, but adaptation works on a copy: {error}. "
                "Remove the attribute that cannot be deep-copied."
            ) from error
    return result


def _functions(module: nn.Module) -> Iterator[object]:
    """Yield the functions that a module holds as attributes or hooks."""
    for name, value in vars(module).items():
        if name.endswith("_hooks") and isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, FunctionType):
            yield value


def _is_method_of_a_module(value: object) -> bool:
    return isinstance(value, MethodType) and isinstance(value.__self__, nn.Module)


def _holds_a_module(function: FunctionType) -> bool:
    """Return whether a function closes over a module; its copy must close over the copy of that module."""
    return any(_is_of_a_module(cell) for cell in function.__closure__ or ())


def _is_of_a_module(cell: CellType) -> bool:
    try:
        return isinstance(cell.cell_contents, nn.Module) or _is_method_of_a_module(cell.cell_contents)
    except ValueError:  # an empty cell
        return False


def _with_empty_cells(function: FunctionType) -> FunctionType:
    cells = tuple(CellType() if _is_of_a_module(cell) else cell for cell in function.__closure__ or ())
    fresh = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    fresh.__kwdefaults__ = function.__kwdefaults__
    return fresh


def _fill_cells(function: FunctionType, fresh: FunctionType, memo: dict[int, Any]) -> None:
    for old, new in zip(function.__closure__ or (), fresh.__closure__ or (), strict=True):
        if old is not new:
            new.cell_contents = copy.deepcopy(old.cell_contents, memo)


def _on_same_storage(p: nn.Parameter) -> nn.Parameter:
    # Inference tensors cannot take part in a backward pass. `.data` has its own version counter.
    return nn.Parameter(p.clone() if p.is_inference() else p.data, requires_grad=False)


def _other_tensors(module: nn.Module) -> Iterator[Tensor]:
    """Yield buffers and plain tensor attributes; deepcopy refuses those that have a gradient function."""
    yield from (buffer for buffer in module._buffers.values() if buffer is not None)
    yield from (value for value in vars(module).values() if isinstance(value, Tensor))


def _wrapped(module: nn.Module) -> nn.Module | None:
    kind = type(module)
    child = _WRAPPERS.get(kind.__name__) if kind.__module__.startswith("torch.") else None
    return None if child is None else module._modules[child]


class _Transparent(nn.Module):
    """Replace a wrapper inside a network, keeping its state dict names, and call what it wrapped."""

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

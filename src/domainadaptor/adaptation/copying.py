"""Copies of a network: linked to the user's tensors for adapting, or independent for handing out."""

import copy
from collections.abc import Callable, Iterator, Mapping
from types import CellType, FunctionType, MethodType
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
    if any(isinstance(module, torch.jit.ScriptModule) for module in network.modules()):
        raise UnsupportedNetwork(
            "TorchScript cannot be adapted, whole or in part: its layers are fixed; pass the Python network"
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


def linked_copy(network: nn.Module) -> nn.Module:
    """A copy whose parameters are new objects on the same storage; buffers, which a forward may write to, are new."""
    return _copied(network, parameter=_on_same_storage, replace={})


def twin(network: nn.Module, replace: Mapping[nn.Module, nn.Module], private: bool = False) -> nn.Module:
    """A copy with the very same parameters, or `private` ones, and some layers replaced wherever they are used."""
    return _copied(network, parameter=_cloned if private else lambda p: p, replace=replace)


def independent_copy(network: nn.Module) -> nn.Module:
    """A copy that shares nothing."""
    return _copied(network, parameter=_cloned, replace={})


def _cloned(p: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(p.detach().clone(), requires_grad=False)


def _copied(
    network: nn.Module,
    *,
    parameter: Callable[[nn.Parameter], nn.Parameter],
    replace: Mapping[nn.Module, nn.Module],
) -> nn.Module:
    # deepcopy takes what it finds in the memo instead of copying it: the one place where tensors are exchanged,
    # layers replaced and wrappers removed, wherever the network refers to them.
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
                memo[id(hook)] = hook  # the user's own: the copy calls the same one
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
                f"{type(network).__name__} cannot be copied, and adaptation works on a copy: {error}; "
                "remove the attribute that cannot be deep-copied"
            ) from error
    return result


def _functions(module: nn.Module) -> Iterator[object]:
    """Functions that a module holds: as attributes, and as hooks."""
    for name, value in vars(module).items():
        if name.endswith("_hooks") and isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, FunctionType):
            yield value


def _is_method_of_a_module(value: object) -> bool:
    return isinstance(value, MethodType) and isinstance(value.__self__, nn.Module)


def _holds_a_module(function: FunctionType) -> bool:
    """Whether a function closes over a network: its copy must close over the copy."""
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
    # Tensors made in inference mode cannot take part in a backward pass; .data has a count of writes of its own.
    data = p.clone() if p.is_inference() else p.data
    return nn.Parameter(data, requires_grad=False)


def _other_tensors(module: nn.Module) -> Iterator[Tensor]:
    """Buffers, and tensors kept as plain attributes, which deepcopy refuses when they have a gradient function."""
    yield from (buffer for buffer in module._buffers.values() if buffer is not None)
    yield from (value for value in vars(module).values() if isinstance(value, Tensor))


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

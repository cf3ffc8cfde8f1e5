"""A folder of modules as a table from names to functions: the folder is the registry."""

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from domainadaptor.errors import BadOption
from domainadaptor.options import suggestion


def table(package: str) -> dict[str, Callable[..., Any]]:
    """What the modules of a package export, by name with hyphens for underscores."""
    folder = importlib.import_module(package)
    names = [entry.name for entry in pkgutil.iter_modules(folder.__path__) if not entry.name.startswith("_")]
    modules = [importlib.import_module(f"{package}.{name}") for name in names]
    return {name.replace("_", "-"): getattr(module, name) for module in modules for name in _exports(module)}


def find(package: str, kind: str, name: object) -> Callable[..., Any]:
    """The function called `name`, a function given as such, or one written "package.module:function"."""
    if callable(name):
        return name
    known = table(package)
    if isinstance(name, str) and ":" in name:
        return _outside(kind, name)
    if not isinstance(name, str) or name not in known:
        raise BadOption(f"unknown {kind} {name!r}; {suggestion(name, known)}, or 'package.module:function' of your own")
    return known[name]


def sentence(function: Callable[..., Any]) -> str:
    """The first line of a function's docstring."""
    return (function.__doc__ or "").strip().partition("\n")[0]


def _exports(module: ModuleType) -> list[str]:
    if "__all__" not in vars(module):
        raise BadOption(f"{module.__name__} has no __all__: list there the functions that it exports")
    return list(module.__all__)


def _outside(kind: str, path: str) -> Callable[..., Any]:
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadOption(f"{kind} {path!r}: expected an importable 'package.module:function'; {error}") from error
    if not callable(found):
        raise BadOption(
            f"{kind} {path!r} is a {type(found).__name__}; expected a function from a network to an adaptor"
        )
    return found  # type: ignore[no-any-return]

"""A folder of modules as a table from names to functions: the folder is the registry."""

import ast
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from domainadaptor.errors import BadOption
from domainadaptor.options import suggestion

_typed: dict[str, Callable[..., Any]] = {}  # "package.module:function" that a user typed in this process


class Entry(NamedTuple):
    """A function that a module of the folder exports."""

    module: str
    attribute: str
    tree: ast.Module | None  # None where the source is not available

    def load(self) -> Callable[..., Any]:
        """Import the module and return the function."""
        return getattr(importlib.import_module(self.module), self.attribute)  # type: ignore[no-any-return]


def entries(package: str) -> dict[str, Entry]:
    """Return what the modules of a package export, by name with hyphens for underscores, without importing them."""
    folder = importlib.import_module(package)
    found = {}
    for info in pkgutil.iter_modules(folder.__path__):
        if not info.name.startswith("_"):
            module = f"{package}.{info.name}"
            tree = _source_tree(info, module)
            for name in _exports(module, tree):
                found[name.replace("_", "-")] = Entry(module, name, tree)
    return found


def table(package: str) -> dict[str, Callable[..., Any]]:
    """Import the modules of a package and return the functions that they export, by name."""
    return {name: entry.load() for name, entry in entries(package).items()}


def find(package: str, kind: str, name: object, *, allow_import: bool = False) -> Callable[..., Any]:
    """Return a registered function by name; a function is returned as it is.

    Args:
        package: The folder.
        kind: What messages call its functions.
        name: A registered name, or a function.
        allow_import: Also accept "package.module:function" and "file.py:function". Pass it only for names that the user
            typed: a name from a file must not import code. A name that was accepted once stays accepted.

    Raises:
        BadOption: There is no such function.
    """
    if callable(name):
        return name
    if isinstance(name, str) and name in _typed:
        return _typed[name]
    if isinstance(name, str) and ":" in name:
        if not allow_import:
            raise BadOption(f"{kind} {name!r}: only registered names are accepted here, not functions of other modules")
        return _typed.setdefault(name, _outside(kind, name))
    known = entries(package)
    if not isinstance(name, str) or name not in known:
        own = ", or 'package.module:function' of your own" if allow_import else ""
        raise BadOption(f"unknown {kind} {name!r}; {suggestion(name, known)}{own}")
    return known[name].load()


def sentence(function: Callable[..., Any]) -> str:
    """Return the first line of a function's docstring."""
    return (function.__doc__ or "").strip().partition("\n")[0]


def _source_tree(info: pkgutil.ModuleInfo, module: str) -> ast.Module | None:
    spec = info.module_finder.find_spec(info.name, None)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    path = Path(spec.origin)
    try:
        seen = path.stat()
    except OSError:
        return None
    return _parsed(path, seen.st_mtime_ns, seen.st_size)


@lru_cache(maxsize=512)
def _parsed(path: Path, modified: int, size: int) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _exports(module: str, tree: ast.Module | None) -> list[str]:
    if tree is None:
        return list(getattr(importlib.import_module(module), "__all__", ()))
    listed = assigned(tree, "__all__")
    if listed is None:
        raise BadOption(f"{module} has no __all__: list there the functions that it exports")
    return list(ast.literal_eval(listed))


def assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """Return the expression that a module assigns to a name at its top level."""
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else ()
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return statement.value  # type: ignore[attr-defined, no-any-return]
    return None


def _outside(kind: str, path: str) -> Callable[..., Any]:
    place, _, attribute = path.rpartition(":")
    try:
        found = getattr(_imported(place), attribute)
    except (ImportError, AttributeError, OSError) as error:
        raise BadOption(f"{kind} {path!r}: expected an importable 'package.module:function'; {error}") from error
    if not callable(found):
        raise BadOption(
            f"{kind} {path!r} is a {type(found).__name__}; expected a function from a network to an adaptor"
        )
    return found  # type: ignore[no-any-return]


def _imported(place: str) -> ModuleType:
    """Import a module by its name, also from the current folder, or by the path of its file."""
    if not place.endswith(".py"):
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        return importlib.import_module(place)
    spec = importlib.util.spec_from_file_location(Path(place).stem, place)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot read {place!r}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""A folder of modules as a table from names to functions: the folder is the registry."""

import ast
import importlib
import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping
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


def entries(package: str) -> Mapping[str, Entry]:
    """Return what the modules of a package export, by name in lower case with hyphens, without importing them."""
    folders = [Path(folder) for folder in importlib.import_module(package).__path__]
    return _entries(package, tuple((str(folder), folder.stat().st_mtime_ns) for folder in folders))


@lru_cache(maxsize=64)
def _entries(package: str, folders: tuple[tuple[str, int], ...]) -> Mapping[str, Entry]:
    """Read the modules; the time of a folder's last change is part of the key, so that new files are seen."""
    found = {}
    for info in pkgutil.iter_modules([folder for folder, _ in folders]):
        if not info.name.startswith("_"):
            module = f"{package}.{info.name}"
            tree = source_tree(module)
            for name in _exports(module, tree):
                found[_hyphenated(name)] = Entry(module, name, tree)
    return dict(sorted(found.items()))


def _hyphenated(name: str) -> str:
    """Return a registered name: "adabn-source-and-test" for adabn_source_and_test and for AdabnSourceAndTest."""
    return re.sub(r"_|(?<=[a-z])(?=[A-Z])", "-", name).lower()


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
        own = ", or 'file.py:function' of your own" if allow_import else ""
        raise BadOption(f"unknown {kind} {name!r}; {suggestion(name, known)}{own}")
    return known[name].load()


def source_tree(module: str) -> ast.Module | None:
    """Return the syntax tree of a module without importing it; None for a compiled one."""
    spec = importlib.util.find_spec(module)
    return None if spec is None else _parsed(spec.origin)


@lru_cache(maxsize=256)
def _parsed(file: str | None) -> ast.Module | None:
    return ast.parse(Path(file).read_text(encoding="utf-8")) if file and file.endswith(".py") else None


def _exports(module: str, tree: ast.Module | None) -> list[str]:
    if tree is None:
        return list(getattr(importlib.import_module(module), "__all__", ()))
    listed = _assigned(tree, "__all__")
    if listed is None:
        raise BadOption(f"{module} has no __all__: list there the functions that it exports")
    return list(ast.literal_eval(listed))


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
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
    except Exception as error:  # whatever a user's module raises
        why = f"{type(error).__name__}: {error}"
        raise BadOption(f"{kind} {path!r}: expected 'package.module:function' or 'file.py:function'; {why}") from error
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

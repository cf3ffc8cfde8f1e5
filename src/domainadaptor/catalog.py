"""The catalog of methods: what each does, its paper, needs, cost and options; read without importing torch.

`@method` and `variant` describe a method in its file. The catalog reads the files of `domainadaptor/methods` as syntax
trees, so that a list of methods does not need torch.
"""

import ast
import builtins
import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeVar, cast

from domainadaptor import option_types as option_types  # loaded: the files import their types from it
from domainadaptor import registry
from domainadaptor.options import (
    OptionInfo,
    Parameter,
    coerce_options,
    defaults_of,
    docstring_entries,
    parameters,
    parse_options,
)

F = TypeVar("F", bound=Callable[..., Any])

Kind = Literal["none", "statistics", "loss", "self-supervised", "teacher", "prediction"]
Need = Literal["features and a linear head", "a head trained for it", "source samples", "altered training"]

METHODS = "domainadaptor.methods"


@dataclass(frozen=True)
class MethodInfo:
    """What a reader wants to know about a method."""

    name: str = ""
    summary: str = ""
    paper: str = ""
    year: int | None = None
    kind: Kind | None = None
    forwards: str = ""  # forward passes per batch, as "1" or "1 + views"
    backwards: str = ""
    needs: tuple[Need, ...] = ()
    options: Mapping[str, OptionInfo] = field(default_factory=dict)

    @property
    def defaults(self) -> dict[str, Any]:
        """The default of each option."""
        return {name: option.default for name, option in self.options.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self) | {"options": {name: option._asdict() for name, option in self.options.items()}}


def method(
    *,
    paper: str = "",
    year: int | None = None,
    kind: Kind | None = None,
    forwards: str = "",
    backwards: str = "0",
    needs: tuple[Need, ...] = (),
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> Callable[[F], F]:
    """Describe a function from a network to an adaptor, and validate its options whenever it is called.

    Args:
        paper: First author and name, as "Wang et al., Tent".
        year: Of the publication.
        kind: What the method changes.
        forwards: Forward passes per batch, as "1" or "1 + views".
        backwards: Backward passes per batch.
        needs: What the method needs besides a network and images.
        check: Raises BadOption for options that do not fit together; it gets all of them, defaults included.
    """
    card = MethodInfo(paper=paper, year=year, kind=kind, forwards=forwards, backwards=backwards, needs=needs)

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def checked(network: Any, **values: Any) -> Any:
            given = coerce_options(function, values)
            _check_together(checked, given)
            return function(network, **given)

        checked.card, checked.check = card, check  # type: ignore[attr-defined]
        return cast(F, checked)

    return decorate


def variant(base: F, doc: str, *, defaults: Mapping[str, Any], **card: Any) -> F:
    """Return a method with other defaults.

    Args:
        base: A function with `@method`.
        doc: The variant's docstring.
        defaults: Options with other defaults.
        **card: What differs in the description, as `@method` has it.
    """
    made = functools.partial(base, **coerce_options(base, defaults))
    made.__doc__ = doc
    made.card, made.check = replace(base.card, **card), base.check  # type: ignore[attr-defined]
    return cast(F, made)


def describe(package: str) -> dict[str, MethodInfo]:
    """Return what is known about the functions of a folder, by name; without importing its modules where possible."""
    return {name: _describe(name, entry) for name, entry in registry.entries(package).items()}


def describe_table(module: str, table: str) -> dict[str, MethodInfo]:
    """Return what is known about the functions or classes that a module lists in a dict, by name."""
    spec = importlib.util.find_spec(module)
    tree = None if spec is None else registry.parsed(spec.origin)
    listed = None if tree is None else registry.assigned(tree, table)
    if tree is None or not isinstance(listed, ast.Dict):
        return {name: _inspect(function) for name, function in getattr(importlib.import_module(module), table).items()}
    names = [ast.literal_eval(key) for key in listed.keys if key is not None]
    found = [registry.Entry(module, ast.unparse(value), tree) for value in listed.values]
    return {name: _describe(name, entry) for name, entry in zip(names, found, strict=True)}


def _describe(name: str, entry: registry.Entry) -> MethodInfo:
    found = None if entry.tree is None else _read(entry.tree, entry.attribute)
    return replace(found or _inspect(entry.load()), name=name)


def list_methods() -> dict[str, str]:
    """Return every method's name with one sentence on what it does; sorted by name, without importing torch."""
    return {name: info.summary for name, info in describe(METHODS).items()}


def method_info(method: str | Callable[..., Any], *, allow_import: bool = False) -> MethodInfo:
    """Return what is known about a method: summary, paper, needs, cost and options.

    Args:
        method: A name in `list_methods()`, or a function from a network to an adaptor.
        allow_import: Also accept "package.module:function"; only for names that the user typed.

    Raises:
        BadOption: There is no such method.
    """
    if isinstance(method, str) and (entry := registry.entries(METHODS).get(method)) is not None:
        return _describe(method, entry)
    function = registry.find(METHODS, "method", method, allow_import=allow_import)
    name = method if isinstance(method, str) else getattr(function, "__name__", "").replace("_", "-")
    return replace(_inspect(function), name=name)


def method_options(
    method: str | Callable[..., Any], values: Mapping[str, Any], *, text: bool = False, allow_import: bool = False
) -> dict[str, Any]:
    """Return options of a method in their declared types; `guard`, which `adapt` takes, is one of them.

    Args:
        method: A registered name, or a function from a network to an adaptor.
        values: Options by name.
        text: Read each value from text, as on a command line.
        allow_import: Also accept "package.module:function"; only for names that the user typed.

    Raises:
        BadOption: There is no such method or option, or a value is not allowed.
    """
    function = registry.find(METHODS, "method", method, allow_import=allow_import)
    convert = parse_options if text else coerce_options
    own = {name: value for name, value in values.items() if name != "guard"}
    found = convert(function, own, method if isinstance(method, str) else "")
    if "guard" in values:
        found |= convert(_of_every_method, {"guard": values["guard"]})
    _check_together(function, found)
    return {name: found[name] for name in values}


def _check_together(function: Callable[..., Any], values: Mapping[str, Any]) -> None:
    check = getattr(function, "check", None)
    if check is not None:
        check({**defaults_of(function), **values})


def _of_every_method(*, guard: bool = False) -> None: ...


def _inspect(function: Callable[..., Any]) -> MethodInfo:
    """Describe a function that is already imported."""
    card = cast(MethodInfo, getattr(function, "card", MethodInfo()))
    written = docstring_entries(_docs(function))
    infos = {parameter.name: parameter.info(written) for parameter in parameters(function)}
    return replace(card, summary=(function.__doc__ or "").strip().partition("\n")[0], options=infos)


def _docs(function: Callable[..., Any]) -> str:
    """Return the docstring, and for a variant also that of its base, which describes the options."""
    own = inspect.getdoc(function) or ""
    return own if "Args:\n" in own or not isinstance(function, functools.partial) else _docs(function.func)


class _Unreadable(Exception):
    """A file whose descriptions need an import."""


def _read(tree: ast.Module, name: str) -> MethodInfo | None:
    """Describe a method from its file's syntax tree; None where that takes an import."""
    try:
        return _read_name(tree, name)
    except _Unreadable:
        return None


def _read_name(tree: ast.Module, name: str) -> MethodInfo:
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return _read_function(tree, statement, ast.get_docstring(statement) or "")
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            own = [node for node in statement.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
            return _read_function(tree, own[0], ast.get_docstring(statement) or "") if own else MethodInfo()
        if isinstance(statement, ast.ImportFrom) and name in [alias.name for alias in statement.names]:
            entry = next((e for e in registry.entries(METHODS).values() if e.module == statement.module), None)
            if entry is not None and entry.tree is not None:
                return _read_name(entry.tree, name)
    return _read_variant(tree, registry.assigned(tree, name))


def _read_function(tree: ast.Module, function: ast.FunctionDef, docstring: str) -> MethodInfo:
    written = docstring_entries(docstring)
    card = MethodInfo()
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call) or ast.unparse(decorator.func) != "method":
            raise _Unreadable
        card = MethodInfo(**{"backwards": "0"} | _keywords(tree, decorator))
    infos = {}
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if default is None:
            raise _Unreadable
        annotation = Any if argument.annotation is None else _value(tree, argument.annotation)
        parameter = Parameter(argument.arg, annotation, _value(tree, default))
        infos[argument.arg] = parameter.info(written)
    return replace(card, summary=docstring.partition("\n")[0], options=infos)


def _read_variant(tree: ast.Module, call: ast.expr | None) -> MethodInfo:
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "variant" or not isinstance(call.args[0], ast.Name):
        raise _Unreadable
    base = _read_name(tree, call.args[0].id)
    card = _keywords(tree, call)
    changed = card.pop("defaults")
    infos = {
        name: info._replace(default=changed[name]) if name in changed else info for name, info in base.options.items()
    }
    summary = inspect.cleandoc(_value(tree, call.args[1])).partition("\n")[0]
    return replace(base, summary=summary, options=infos, **card)


def _keywords(tree: ast.Module, call: ast.Call) -> dict[str, Any]:
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg not in (None, "check")}
    return {str(name): _value(tree, value) for name, value in named.items()}


def _value(tree: ast.Module, expression: ast.expr) -> Any:
    """Evaluate a default, an annotation or a description in what is known without torch."""
    try:
        return eval(compile(ast.Expression(expression), "<method>", "eval"), {"__builtins__": {}}, _Names(tree))
    except Exception as error:
        raise _Unreadable from error


class _Names(dict[str, Any]):
    """The names of a file: its constants, and what it imports from modules that are loaded already."""

    def __init__(self, tree: ast.Module) -> None:
        super().__init__(vars(builtins))
        self._tree = tree

    def __missing__(self, name: str) -> Any:
        expression = registry.assigned(self._tree, name)
        if expression is not None:
            return _value(self._tree, expression)
        for statement in self._tree.body:
            for alias in statement.names if isinstance(statement, ast.ImportFrom) else ():
                if name == (alias.asname or alias.name):
                    return getattr(sys.modules[str(statement.module)], alias.name)  # type: ignore[attr-defined]
        raise KeyError(name)

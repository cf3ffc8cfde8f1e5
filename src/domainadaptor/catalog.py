"""The catalog of methods: what each does, its paper, needs, cost and options; read without importing torch.

`@method` and `variant` describe a method in its file. The catalog runs only the declarations of the files in
`domainadaptor/methods`, without function bodies, so that a list of methods does not need torch.
"""

import ast
import contextlib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import SimpleNamespace
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
DEFAULT_METHOD = "auto"  # wherever no other is named


@dataclass(frozen=True)
class MethodInfo:
    """What a reader wants to know about a method.

    Example:
        >>> info = da.method_info("tent")
        >>> info.paper, info.year, info.forwards
        ('Wang et al., Tent', 2021, '1 (2 if it predicts after)')
        >>> info.defaults["lr"]
        0.001
    """

    name: str = ""
    summary: str = ""
    details: str = ""  # what the docstring says besides
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
    options: Callable[..., Any] | None = None,
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> Callable[[F], F]:
    """Describe a method, a function or class that makes an adaptor, and validate its options at each call.

    Args:
        paper: First author and name, as "Wang et al., Tent".
        year: Of the publication.
        kind: What the method changes.
        forwards: Forward passes per batch, as "1" or "1 + views".
        backwards: Backward passes per batch.
        needs: What the method needs besides a network and images.
        options: A function whose options the method takes too, in its `**` argument, such as
            `option_types.gradient_steps`; an option of the method's own replaces the one of that name.
        check: Raises BadOption for options that do not fit together; it gets all of them, defaults included.

    Example:
        >>> @da.method(paper="Me", year=2026, kind="statistics", forwards="1")
        ... def half(network, *, alpha: da.option_types.Share = 0.5):
        ...     \"\"\"Mix both statistics equally.\"\"\"
        ...     return da.StepAdaptor(network, norm=lambda layer: da.MixedNorm(layer, alpha=alpha))
        >>> da.adapt(network, half, alpha=0.7)(images).shape
        torch.Size([8, 5])
    """
    card = MethodInfo(paper=paper, year=year, kind=kind, forwards=forwards, backwards=backwards, needs=needs)

    def decorate(made: F) -> F:
        function: Any = made.__init__ if inspect.isclass(made) else made
        own = {p.name for p in parameters(function)}
        shared = [p for p in parameters(options) if p.name not in own] if options is not None else []

        @functools.wraps(function)
        def checked(*network: Any, **values: Any) -> Any:
            given = coerce_options(decorated, values)
            _check_together(decorated, given)
            return function(*network, **{p.name: p.default for p in shared} | given)

        checked.__signature__ = _with_options(function, shared)  # type: ignore[attr-defined]
        decorated: Any = checked
        if inspect.isclass(made):
            decorated = made
            decorated.__init__ = checked
        decorated.card, decorated.check = card, check
        return cast(F, decorated)

    return decorate


def _with_options(function: Callable[..., Any], shared: Iterable[Parameter]) -> inspect.Signature:
    """Return a function's signature with options in place of its `**` argument."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    more = [
        inspect.Parameter(p.name, inspect.Parameter.KEYWORD_ONLY, default=p.default, annotation=p.annotation)
        for p in shared
    ]
    return signature.replace(parameters=own + more)


def variant(base: F, doc: str, *, defaults: Mapping[str, Any], **card: Any) -> F:
    """Return a method with other defaults.

    Args:
        base: A function with `@method`.
        doc: The variant's docstring.
        defaults: Options with other defaults.
        **card: What differs in the description, as `@method` has it.

    Example:
        >>> from domainadaptor.methods.tent import tent
        >>> fast_tent = da.variant(tent, "Tent with a long step.", defaults={"lr": 0.01})
        >>> da.adapt(network, fast_tent)(images).shape
        torch.Size([8, 5])
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
    tree = registry.source_tree(module)
    declared = {} if tree is None else _outline(tree)
    functions = declared[table] if table in declared else getattr(importlib.import_module(module), table)
    return {name: replace(_inspect(function), name=name) for name, function in functions.items()}


def _describe(name: str, entry: registry.Entry) -> MethodInfo:
    declared = None if entry.tree is None else _outline(entry.tree).get(entry.attribute)
    return replace(_inspect(declared or entry.load()), name=name)


def list_methods() -> dict[str, str]:
    """Return every method's name with one sentence on what it does; sorted by name, without importing torch.

    Example:
        >>> da.list_methods()["adabn"]
        'Normalize each batch with its own statistics.'
    """
    return {name: info.summary for name, info in describe(METHODS).items()}


def method_info(method: str | Callable[..., Any], *, allow_import: bool = False) -> MethodInfo:
    """Return what is known about a method: summary, paper, needs, cost and options.

    Args:
        method: A name in `list_methods()`, or a function from a network to an adaptor.
        allow_import: Also accept "package.module:function"; only for names that the user typed.

    Raises:
        BadOption: There is no such method.

    Example:
        >>> da.method_info("adabn").options["variance"].type
        'unbiased or biased'
    """
    if isinstance(method, str) and (entry := registry.entries(METHODS).get(method)) is not None:
        return _describe(method, entry)
    function = registry.find(METHODS, "method", method, allow_import=allow_import)
    name = method if isinstance(method, str) else getattr(function, "__name__", "").replace("_", "-")
    return replace(_inspect(function), name=name)


def method_options(
    method: str | Callable[..., Any], values: Mapping[str, Any], *, text: bool = False, allow_import: bool = False
) -> dict[str, Any]:
    """Return options of a method in their declared types, those that `adapt` takes among them.

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
    shared = {p.name: values[p.name] for p in parameters(of_every_method) if p.name in values}
    own = {name: value for name, value in values.items() if name not in shared}
    found = convert(function, own, method if isinstance(method, str) else "") | convert(of_every_method, shared)
    _check_together(function, found)
    return {name: found[name] for name in values}


def _check_together(function: Callable[..., Any], values: Mapping[str, Any]) -> None:
    check = getattr(function, "check", None)
    if check is not None:
        check({**defaults_of(function), **values})


def of_every_method(*, multilabel: bool = False, guard: bool = False, min_batch: option_types.Count = 1) -> None:
    """Options that `adapt` takes for every method."""


def _inspect(function: Callable[..., Any]) -> MethodInfo:
    """Describe a function that is already imported."""
    card = cast(MethodInfo, getattr(function, "card", MethodInfo()))
    written = docstring_entries(_docs(function))
    infos = {parameter.name: parameter.info(written) for parameter in parameters(function)}
    summary, _, more = inspect.cleandoc(function.__doc__ or "").partition("\n")
    details = " ".join(more.partition("Args:\n")[0].split())
    return replace(card, summary=summary, details=details, options=infos)


def _docs(function: Callable[..., Any]) -> str:
    """Return the docstring, and for a variant also that of its base, which describes the options."""
    own = inspect.getdoc(function) or ""
    return own if "Args:\n" in own or not isinstance(function, functools.partial) else _docs(function.func)


@functools.lru_cache(maxsize=256)
def _outline(tree: ast.Module) -> dict[str, Any]:
    """Return what a file declares: constants, and functions and classes without their bodies.

    Statements that use a module that is not loaded, such as torch, are left out.
    """
    names: dict[str, Any] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names |= _imports(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.FunctionDef | ast.ClassDef):
            declared = ast.fix_missing_locations(ast.Module([_declaration(statement)], type_ignores=[]))
            with contextlib.suppress(Exception):
                exec(compile(declared, "<outline>", "exec"), names)
    return names


def _imports(statement: ast.Import | ast.ImportFrom) -> dict[str, Any]:
    """Return what a statement imports from loaded modules or from the outlines of other methods."""
    if isinstance(statement, ast.Import):
        # Copies: asking the package itself for a name may import torch.
        loaded = {alias.asname or alias.name: sys.modules.get(alias.name) for alias in statement.names}
        return {name: SimpleNamespace(**vars(module)) for name, module in loaded.items() if module is not None}
    found: Mapping[str, Any] = {}
    if statement.module in sys.modules:
        found = vars(sys.modules[statement.module])
    elif str(statement.module).startswith(f"{METHODS}.") and (tree := registry.source_tree(str(statement.module))):
        found = _outline(tree)
    return {alias.asname or alias.name: found[alias.name] for alias in statement.names if alias.name in found}


def _declaration(node: ast.stmt) -> ast.stmt:
    """Return a function or class with its options, decorators and docstring only."""
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node
    body: list[ast.stmt] = node.body[:1] if ast.get_docstring(node) else [ast.Pass()]
    if isinstance(node, ast.ClassDef):
        body += [_declaration(n) for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        return ast.ClassDef(node.name, bases=[], keywords=[], body=body, decorator_list=node.decorator_list)
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(argument.arg) for argument in node.args.args],
        kwonlyargs=node.args.kwonlyargs,
        kw_defaults=node.args.kw_defaults,
        kwarg=node.args.kwarg and ast.arg(node.args.kwarg.arg),
        defaults=[],
    )
    return ast.FunctionDef(node.name, arguments, body, decorator_list=node.decorator_list)

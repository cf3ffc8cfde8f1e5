"""Limits: short files, short functions, few positional arguments, no two public classes of one name."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import domainadaptor

ROOT = Path(domainadaptor.__file__).parent
TESTS = Path(__file__).parents[1]
LINES_OF_A_FILE = 400
LINES_OF_A_FUNCTION = 40  # without signature, docstring and imports
POSITIONAL_ARGUMENTS = 5
# Passed by position for a reason.
MAY_TAKE_MORE = {
    "forward": "torch's autograd",
    "normalized": "the tensors of a norm layer, as torch.nn.functional.batch_norm takes them",
    "snow": "a row of the published table of severities",
}


def functions(path: Path):
    """Return every function of a file, methods and nested functions included."""
    return [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def lines_of_body(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    imports = [inner for inner in ast.walk(node) if isinstance(inner, ast.Import | ast.ImportFrom)]
    imported = sum((inner.end_lineno or 0) - inner.lineno + 1 for inner in imports)
    return (node.end_lineno or 0) - body[0].lineno + 1 - imported


SOURCES = pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))


@SOURCES
def test_files_and_functions_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_OF_A_FILE
    long = {node.name: lines_of_body(node) for node in functions(path) if lines_of_body(node) > LINES_OF_A_FUNCTION}
    assert not long


@SOURCES
def test_few_arguments_of_public_functions_are_positional(path):
    too_many = {}
    for node in functions(path):
        named = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args) if arg.arg not in ("self", "cls", "ctx")]
        if node.name.startswith("_") or node.name in MAY_TAKE_MORE or is_a_command(path, node):
            continue
        if len(named) > POSITIONAL_ARGUMENTS:
            too_many[node.name] = named
    assert not too_many


def is_a_command(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the arguments are options of the command line, which typer passes by name."""
    return path.parent.name == "cli" and (node.name == path.stem or bool(node.decorator_list))


def test_no_two_public_classes_have_one_name():
    names = Counter(
        node.name
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert not {name for name, count in names.items() if count > 1}


def test_tests_are_short_files_too():
    long = {str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if len(path.read_text().splitlines()) > 520}
    assert not long

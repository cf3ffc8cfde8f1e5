"""Who may import whom, and what importing the package loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import domainadaptor

ROOT = Path(domainadaptor.__file__).parent

# A room may look only into rooms that stand above it here, or into the public functions.
MAY_IMPORT = {
    "errors": set(),
    "options": {"errors"},
    "plugins": {"errors", "options"},
    "phases": set(),
    "norms": {"errors", "options", "phases"},
    "adaptation": {"errors", "options", "phases", "memory", "norms"},
    "about": set(),
    "recipes": {"errors", "options", "about", "norms", "adaptation", "tasks"},
    "files": {"errors"},
    "data": {"errors", "options", "plugins", "files"},
    "networks": {"errors", "options", "files", "norms", "data", "domainadaptor"},
    "tasks": {"errors", "plugins", "domainadaptor"},
    "training": {
        "errors",
        "options",
        "plugins",
        "files",
        "memory",
        "revision",
        "data",
        "networks",
        "tasks",
        "domainadaptor",
    },
    "memory": set(),
    "revision": set(),
    "supplies": {"errors", "data", "networks", "domainadaptor"},
    "evaluation": {"errors", "options", "memory", "adaptation", "data"},
    "experiments": {
        "errors",
        "options",
        "files",
        "norms",
        "adaptation",
        "tasks",
        "data",
        "networks",
        "training",
        "evaluation",
        "supplies",
        "revision",
        "domainadaptor",
    },
    "prediction": {"errors", "files", "adaptation", "data"},
    "reports": {"errors", "options", "files"},
    "bench": {"errors", "phases", "memory", "adaptation", "data", "networks", "domainadaptor"},
    "stress": {"errors", "options", "adaptation", "data", "domainadaptor"},
    "demo": {"errors", "data", "domainadaptor"},
    "cli": {
        "errors",
        "options",
        "plugins",
        "adaptation",
        "data",
        "files",
        "networks",
        "training",
        "evaluation",
        "experiments",
        "supplies",
        "prediction",
        "reports",
        "bench",
        "stress",
        "demo",
        "domainadaptor",
    },
    "__init__": {"plugins", "options", "errors", "about", "adaptation"},
    "__main__": {"cli"},
}


def room(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0]


def imported(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            known = {child.stem for child in ROOT.iterdir()}
            names = (
                [f"domainadaptor.{a.name}" if a.name in known else "domainadaptor" for a in node.names]
                if node.module == "domainadaptor"
                else [node.module]
            )
        for name in names:
            if name == "domainadaptor":
                rooms.add("domainadaptor")
            elif name.startswith("domainadaptor."):
                rooms.add(name.split(".")[1])
    return rooms


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path):
    assert imported(path) - {room(path)} <= MAY_IMPORT[room(path)]


def test_importing_the_package_loads_torch_and_nothing_optional():
    code = (
        "import sys, domainadaptor; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & "
        "{'torchvision', 'timm', 'sklearn', 'matplotlib', 'transformers', 'PIL', 'typer', 'rich', 'safetensors'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_says_what_it_is_for():
    for path in ROOT.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_type_marker_is_there():
    assert (ROOT / "py.typed").is_file()

"""Who may import whom, and what importing the package loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import domainadaptor

ROOT = Path(domainadaptor.__file__).parent

# The core: what a deployed program imports. It needs torch alone and never looks into the lab or the command line.
CORE = {
    "errors": set(),
    "extras": {"errors"},
    "options": {"errors"},
    "registry": {"errors", "options"},
    "profiling": set(),
    "option_types": {"options"},
    "catalog": {"options", "option_types", "registry"},
    "norms": {"errors", "options", "profiling"},
    "augmentation": {"errors", "options"},
    "adaptation": {"errors", "options", "registry", "catalog", "profiling", "norms", "augmentation"},
    "tasks": {"errors", "registry", "augmentation", "domainadaptor"},
    "methods": {"domainadaptor", "errors", "options", "option_types", "norms", "augmentation", "adaptation", "tasks"},
    "__init__": {"options", "errors", "catalog", "adaptation", "augmentation", "norms", "lab.evaluation"},
}

# The lab: a room looks into the core, and into these rooms of the lab.
LAB: dict[str, set[str]] = {
    "lab": {"extras"},
    "lab.files": set(),
    "lab.allocator": set(),
    "lab.measure": {"lab.allocator"},
    "lab.environment": set(),
    "lab.records": {"lab.files"},
    "lab.data": {"lab.files"},
    "lab.networks": {"lab.files", "lab.records", "lab.data"},
    "lab.training": {"lab.files", "lab.environment", "lab.records", "lab.data", "lab.networks"},
    "lab.method_inputs": {"lab.data", "lab.networks"},
    "lab.evaluation": {"lab.measure", "lab.data"},
    "lab.experiments": {
        "lab.files",
        "lab.records",
        "lab.environment",
        "lab.data",
        "lab.networks",
        "lab.training",
        "lab.evaluation",
        "lab.method_inputs",
    },
    "lab.prediction": {"lab.files", "lab.data"},
    "lab.cluster": {
        "lab.files",
        "lab.records",
        "lab.data",
        "lab.networks",
        "lab.training",
        "lab.experiments",
        "lab.prediction",
    },
    "lab.reports": {"lab.files", "lab.records"},
    "lab.bench": {"lab.allocator", "lab.environment", "lab.export", "lab.measure", "lab.networks"},
    "lab.demo": {"lab.data"},
    "lab.export": {"lab.files", "lab.records", "lab.data", "lab.networks", "lab.prediction"},
    "lab.diagnosis": {"lab.data", "lab.networks"},
}
MAY_IMPORT = (
    CORE
    | {room: set(CORE) | {"domainadaptor"} | rooms for room, rooms in LAB.items()}
    | {
        "serve": {
            *CORE,
            "domainadaptor",
            "lab.allocator",
            "lab.cluster",
            "lab.data",
            "lab.method_inputs",
            "lab.networks",
            "lab.prediction",
        }
    }
    | {
        "page": {
            *CORE,
            "domainadaptor",
            "lab.data",
            "lab.demo",
            "lab.files",
            "lab.measure",
            "lab.method_inputs",
            "lab.networks",
            "lab.prediction",
        }
    }
    | {"cli": set(CORE) | set(LAB) | {"domainadaptor", "page", "serve"}, "__main__": {"cli"}}
)


def room(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    inner = [part for part in parts[1:2] if part != "__init__"]
    return ".".join([parts[0], *inner]) if parts[0] == "lab" else parts[0]


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
                parts = name.split(".")[1:]
                rooms.add(".".join(parts[:2]) if parts[0] == "lab" else parts[0])
    return rooms


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path):
    assert imported(path) - {room(path)} <= MAY_IMPORT[room(path)]


def test_importing_the_package_loads_torch_and_nothing_optional():
    code = (
        "import sys, domainadaptor; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & "
        "{'torchvision', 'timm', 'sklearn', 'matplotlib', 'transformers', 'PIL', 'typer', 'rich', 'safetensors', "
        "'onnx', 'onnxruntime'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_says_what_it_is_for():
    for path in ROOT.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_type_marker_is_there():
    assert (ROOT / "py.typed").is_file()

"""What is installed by each extra, and what a missing one is answered with."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from domainadaptor import extras
from domainadaptor.errors import AdaptationError, MissingExtra

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

CLONE = Path(__file__).parents[1]
SOURCE = Path(extras.__file__).parent
MODULES = {
    "markdown-it-py": "markdown_it",
    "pillow": "PIL",
    "prometheus-client": "prometheus_client",
    "pydantic-settings": "pydantic_settings",
    "python-multipart": "python_multipart",
    "scikit-learn": "sklearn",
}  # a distribution's module, if not its name

# A program that runs the rest of its arguments as if the packages named first were not installed.
BLOCKED = """
import runpy, sys
from importlib.machinery import PathFinder
class Without:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in blocked else PathFinder.find_spec(name, path, target)
blocked = set(sys.argv[1].split(","))
sys.meta_path[sys.meta_path.index(PathFinder)] = Without
sys.argv = sys.argv[2:]
exec(sys.argv[0]) if " " in sys.argv[0] else runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def declared() -> dict[str, set[str]]:
    """Return the modules that each extra of pyproject.toml brings itself."""
    project = tomllib.loads((CLONE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = {"": project["dependencies"], **project["optional-dependencies"]}
    names = {extra: [re.match(r"[\w-]+", line)[0] for line in lines] for extra, lines in lists.items()}
    return {extra: {MODULES.get(name, name) for name in found} for extra, found in names.items()}


def imports_of(*paths: Path) -> set[str]:
    """Return the packages that files import anywhere, without the standard library."""
    found = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"domainadaptor"}


def blocked(packages: set[str], *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED, ",".join(packages), *words], capture_output=True, text=True, timeout=120
    )


def test_each_part_imports_what_its_extra_declares():
    lab, cli = list((SOURCE / "lab").rglob("*.py")), list((SOURCE / "cli").rglob("*.py"))
    serve = list((SOURCE / "serve").rglob("*.py"))
    page = list((SOURCE / "page").rglob("*.py"))
    core = [path for path in SOURCE.rglob("*.py") if path not in (*lab, *cli, *page, *serve)]
    found = declared()
    assert imports_of(*core) == found[""] == {"torch"}
    brought = found["hf"] | found["onnx"] | found["ray"] - {"domainadaptor"}
    # torch exports with onnxscript.
    assert imports_of(*lab) == (found[""] | found["lab"] | brought) - {"domainadaptor", "onnxscript"}
    assert imports_of(*cli) <= found[""] | found["lab"] | found["cli"]
    assert imports_of(*page) <= found[""] | found["lab"] | found["page"]
    # uvicorn parses with h11, FastAPI is built on starlette, and starlette parses forms with python-multipart.
    server = found["serve"] - {"python_multipart"} | {"h11", "starlette"}
    assert imports_of(*serve) <= found[""] | found["lab"] | found["ray"] | server


def test_the_messages_know_the_packages_of_pyproject():
    found = declared()
    lab = found["lab"] - {"tomli"}  # for old Pythons only
    assert set(extras._PACKAGES["lab"]) == lab
    assert set(extras._PACKAGES["cli"]) == lab | found["cli"] - {"domainadaptor"}
    assert set(extras._PACKAGES["serve"]) == set(extras._PACKAGES["cli"]) | found["serve"] - {"domainadaptor"}
    assert set(extras._PACKAGES["page"]) == set(extras._PACKAGES["cli"]) | found["page"] - {"domainadaptor"}
    assert set(extras._PACKAGES["ray"]) == set(extras._PACKAGES["cli"]) | found["ray"] - {"domainadaptor"}
    assert set(extras._PACKAGES["onnx"]) == set(extras._PACKAGES["cli"]) | found["onnx"] - {"domainadaptor"}
    assert set(extras._PACKAGES["hf"]) == found["hf"]


def test_a_missing_extra_is_an_import_error_and_one_of_ours(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "timm" else object())
    with pytest.raises(MissingExtra, match=re.escape("pip install 'domainadaptor[lab]' (missing: timm)")) as caught:
        extras.require_extra("lab", "domainadaptor.lab")
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, AdaptationError)


def test_the_core_works_with_torch_alone():
    code = (
        "import domainadaptor as da, torch; from torch import nn; "
        "net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), "
        "nn.Linear(4, 2)).eval(); "
        "print(len(da.list_methods()), da.adapt(net, 'domainadaptor-t')(torch.rand(4, 3, 8, 8)).shape)"
    )
    done = blocked(set(extras._PACKAGES["cli"]) - {"numpy"}, code)  # torch itself looks for numpy
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("torch.Size([4, 2])\n")


@pytest.mark.parametrize("words", [("domainadaptor", "--help"), ("domainadaptor", "demo")])
def test_the_program_without_its_extra_names_the_command_that_installs_it(words):
    done = blocked({"typer", "rich"}, *words)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "error: The command line needs extra packages: pip install 'domainadaptor[cli]' (missing: rich, typer)\n"
    )


def test_the_lab_without_its_extra_names_the_command_that_installs_it():
    done = blocked({"timm"}, "import domainadaptor.lab.data")
    assert "domainadaptor.lab needs extra packages: pip install 'domainadaptor[lab]' (missing: timm)" in done.stderr
    assert "Traceback" in done.stderr
    assert done.returncode == 1

"""The wheel and the sdist, as strangers get them: built, installed in a fresh environment, tried."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.slow

CLONE = Path(__file__).parents[1]
MEGABYTES = 5
ADAPT = """
import domainadaptor as da, torch
from torch import nn
network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
print(da.__file__, tuple(da.adapt(network.eval(), "domainadaptor-t")(torch.rand(4, 3, 8, 8)).shape))
"""


def run(*words, where: Path, **variables: str) -> subprocess.CompletedProcess:
    """Run a program outside the clone, without the clone on its path."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(word) for word in words], cwd=where, env={**kept, **variables}, capture_output=True, text=True
    )


def succeed(*words, where: Path, **variables: str) -> str:
    done = run(*words, where=where, **variables)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the sdist from the clone, and the wheel from the sdist: what the sdist lacks, the wheel lacks."""
    folder = tmp_path_factory.mktemp("dist")
    succeed(sys.executable, "-m", "build", "--installer", "uv", "--outdir", folder, CLONE, where=folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return SimpleNamespace(wheel=wheel, sdist=sdist)


@pytest.fixture(scope="module")
def unpacked(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built.sdist) as archive:
        archive.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    return root


@pytest.fixture(scope="module")
def environment(built, tmp_path_factory):
    """Install the wheel alone in a fresh environment; `install` adds to it."""
    folder = tmp_path_factory.mktemp("fresh")
    succeed(sys.executable, "-m", "uv", "venv", "--python", sys.executable, folder / "venv", where=folder)
    python = folder / "venv" / "bin" / "python"

    def install(requirement: str) -> None:
        succeed(sys.executable, "-m", "uv", "pip", "install", "--python", python, requirement, where=folder)

    install(str(built.wheel))
    return SimpleNamespace(folder=folder, python=python, program=python.with_name("domainadaptor"), install=install)


def test_the_sdist_has_sources_tests_and_experiments_and_is_small(unpacked, built):
    assert built.sdist.stat().st_size < MEGABYTES * 1e6
    for name in (
        "src/domainadaptor/py.typed",
        "tests/golden/authors_code.npz",
        "src/domainadaptor/lab/experiments/files/comparison.toml",
        "Makefile",
    ):
        assert (unpacked / name).is_file(), name


def test_the_wheel_alone_brings_torch_and_the_core_works(environment):
    freeze = succeed(
        sys.executable, "-m", "uv", "pip", "list", "--python", environment.python, where=environment.folder
    )
    installed = {line.split()[0].lower() for line in freeze.splitlines()}
    assert "torch" in installed
    assert not installed & {"torchvision", "timm", "typer", "rich", "pillow", "safetensors", "pydantic", "numpy"}
    shown = succeed(environment.python, "-c", ADAPT, where=environment.folder)
    assert str(environment.folder) in shown
    assert shown.endswith("(4, 2)\n")
    for words in ([environment.program], [environment.python, "-m", "domainadaptor"]):
        done = run(*words, "--help", where=environment.folder)
        assert done.returncode == 1
        assert "The command line needs extra packages: pip install 'domainadaptor[cli]'" in done.stderr


def test_the_wheel_with_its_program_works(environment, built):
    environment.install(f"domainadaptor[cli] @ {built.wheel.as_uri()}")
    assert "Commands:" in succeed(environment.program, "--help", where=environment.folder)
    assert "domainadaptor-t" in succeed(environment.program, "methods", where=environment.folder)
    assert "Table 3" in succeed(environment.program, "run", "--list", where=environment.folder)
    assert "pen" in succeed(environment.program, "data", "describe", "digits", where=environment.folder)
    assert "neutral" in succeed(environment.program, "check", "resnet20", "--size", "32", where=environment.folder)


def test_the_tests_of_the_sdist_are_complete(unpacked):
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    variables = {"PYTHONPATH": str(unpacked / "src")}
    succeed(*words, "--collect-only", where=unpacked, **variables)
    succeed(*words, "tests/architecture", "tests/test_extras.py", "tests/norms", where=unpacked, **variables)


def test_the_whole_suite_of_the_sdist_passes(unpacked):
    succeed(sys.executable, "-m", "pytest", "-q", "-m", "not slow", where=unpacked, PYTHONPATH=str(unpacked / "src"))

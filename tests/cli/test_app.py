import json
import subprocess
import sys

import pytest

import domainadaptor


def test_version_of_the_installed_program():
    done = subprocess.run([sys.executable, "-m", "domainadaptor", "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout == f"domainadaptor {domainadaptor.__version__}\n"


def test_help_names_every_command_and_exit_code(program):
    done = program("--help")
    assert done.returncode == 0
    for word in ("demo", "methods", "check", "predict", "Exit codes"):
        assert word in done.stdout


@pytest.mark.parametrize("arguments", [("predikt",), ("check",), ("demo", "--batch-size", "0"), ("methods", "--what")])
def test_a_wrong_command_line_exits_with_two(program, arguments):
    done = program(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_methods(program):
    done = program("methods")
    assert done.returncode == 0
    assert all(f"{name} " in done.stdout and text in done.stdout for name, text in domainadaptor.list_methods().items())
    lines = done.stdout.splitlines()
    assert len(lines) < 45
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in done.stdout
    listed = json.loads(program("methods", "--json").stdout)
    assert listed["domainadaptor-t"]["options"]["lr"]["default"] == 1e-3
    one = program("methods", "domainadaptor-t").stdout
    assert all(word in one for word in ("temperature", "2023", "forward passes: 2", "--option", "float >= 0"))
    wrong = program("methods", "domainadapter-t")
    assert wrong.returncode == 1
    assert "did you mean 'domainadaptor-t'" in wrong.stderr

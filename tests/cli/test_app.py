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
    assert all(name in done.stdout for name in domainadaptor.list_methods())
    assert "\x1b" not in done.stdout
    listed = json.loads(program("methods", "--json").stdout)
    assert listed["domainadaptor-t"]["options"]["lr"] == 1e-3
    assert "temperature" in program("methods", "domainadaptor-t").stdout
    wrong = program("methods", "domainadapter-t")
    assert wrong.returncode == 1
    assert "did you mean 'domainadaptor-t'" in wrong.stderr

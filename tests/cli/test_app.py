import json
import os
import shlex
import subprocess
import sys

import pytest
from typer.main import get_command

import domainadaptor
from domainadaptor.cli.app import app

COMMANDS = sorted(get_command(app).commands)

# pydantic is not among them: typer imports it.
HEAVY = ("torch", "torchvision", "timm", "numpy", "PIL", "pandas", "sklearn", "matplotlib")


def started(*words: str) -> subprocess.CompletedProcess:
    """Run the program in a process of its own and list the heavy packages it imported, on the last line."""
    code = (
        "import sys\nfrom domainadaptor.cli import main\n"
        f"sys.argv = ['domainadaptor', *{list(words)!r}]\n"
        "try:\n    main()\n"
        f"finally:\n    print(sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_version_of_the_installed_program():
    done = subprocess.run([sys.executable, "-m", "domainadaptor", "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout == f"domainadaptor {domainadaptor.__version__}\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--help",), 0), (("--version",), 0), (("methods",), 0), (("methods", "tent"), 0), (("evaluate", "--help"), 0),
     (("data", "--help"), 0), (("predict", "--wat"), 2), (("bench", "--method", "tnt"), 1)],
)  # fmt: skip
def test_light_answers_import_nothing_heavy(words, code):
    done = started(*words)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_readable_at_eighty_columns(program, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    done = program(command, "--help")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    (line,) = (line for line in program("--help").stdout.splitlines() if line.split()[:1] == [command])
    assert not line.endswith("..."), "the first line of the docstring is too long for the list of commands"


def test_a_new_command_is_one_file(tmp_path):
    (tmp_path / "greet.py").write_text('def greet() -> None:\n    """Greet."""\n    print("hello")\n')
    code = (
        "import sys\nfrom domainadaptor import cli\n"
        f"cli.__path__.append({str(tmp_path)!r})\nsys.argv = ['domainadaptor', 'greet']\ncli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "hello\n", done.stderr


def test_the_shell_completes_names_of_methods():
    asked = {
        "_DOMAINADAPTOR_COMPLETE": "complete_bash",
        "COMP_WORDS": "domainadaptor predict --method dom",
        "COMP_CWORD": "3",
    }
    command = [sys.executable, "-m", "domainadaptor"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True)
    assert done.stdout.split() == ["domainadaptor-aug", "domainadaptor-skd", "domainadaptor-t"]


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
    assert all(word in one for word in ("temperature", "2023", "forward passes: 2", "--option", "float of at least 0"))
    assert "hostile batches can cost tens of points" in " ".join(program("methods", "delta").stdout.split())
    wrong = program("methods", "domainadapter-t")
    assert wrong.returncode == 1
    assert "did you mean 'domainadaptor-t'" in wrong.stderr


def examples() -> list[tuple[str, str]]:
    """Every command line of the examples in help, with the command that shows it."""
    commands = [(name, command) for name, command in get_command(app).commands.items()]
    commands += [(f"data {name}", command) for name, command in get_command(app).commands["data"].commands.items()]
    found = []
    for name, command in commands:
        if not hasattr(command, "commands"):
            assert command.epilog, f"{name} has no examples"
            lines = command.epilog.replace("\\\n", " ").strip().splitlines()
            found += [(name, line) for line in lines]
    return found


@pytest.mark.parametrize(("name", "line"), examples())
def test_examples_in_help_are_commands_of_the_program(name, line):
    program, *words = shlex.split(line)
    assert program == "domainadaptor"
    command = get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context(name, words)


def test_help_shows_its_examples_line_by_line(program):
    assert "\nExamples:\n  domainadaptor check resnet50\n" in program("check", "--help").stdout

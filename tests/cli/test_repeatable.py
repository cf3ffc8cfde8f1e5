"""Three runs of a command give the same output and the same files, but for times and memory."""

import json

import pytest

MEASURED = ("took", "finished", "seconds", "memory")
COMMANDS = {
    "predict": ("pictures/night", "--method", "domainadaptor-aug"),
    "calibrate": ("pictures/night", "--output", "calibrated.safetensors"),
    "evaluate": ("pictures", "--target", "night", "--method", "domainadaptor-aug"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_three_runs_give_the_same_results(program, base, command):
    found = []
    for _ in range(3):
        done = program(command, "night.safetensors", *COMMANDS[command], "--seed", "3", "--json")
        assert done.returncode == 0, done.stderr
        output = json.loads(done.stdout)
        for record in output if isinstance(output, list) else ():
            assert all(record.pop(name) for name in MEASURED)
        written = {path.name: path.read_bytes() for path in base.glob("*.*")}
        found.append((output, written))
    assert found[0] == found[1] == found[2]

"""Networks that an experiment names: where they are, and what makes those that are missing."""

import pytest

from tests.experiments.small import TEXT, grid_of


@pytest.mark.parametrize("text", ["{", "[]"])
def test_another_file_called_record_does_no_harm(base, text):
    (base / "record.json").write_text(text)
    assert len(grid_of(base).runnable()) == 4


def test_every_network_that_is_missing_is_named(base):
    text = TEXT.replace("mine.safetensors", "{{target}}-{{seed}}.safetensors")
    grid = grid_of(base, text + "seeds = [0, 1]\n")
    said = " ".join(grid.missing().values())
    assert all(f"{target}-{seed}.safetensors" in said for target in ("night", "dusk") for seed in (0, 1))


def test_networks_that_are_missing_are_named_with_their_command(base):
    grid = grid_of(base, TEXT.replace('network = "mine"\ndomains', 'network = "absent"\ndomains'))
    assert grid.runnable() == {}
    (command, *_) = grid.missing()
    assert command.startswith("domainadaptor train pacs --network resnet20 --seed 0")
    plan = grid.plan()
    assert plan["tables"][0]["rows"][0]["cells"] == {"night": [None], "dusk": [None]}
    assert plan["tables"][0]["rows"][0]["commands"]["night"] == [command]


def test_options_of_training_are_words_of_its_command(base):
    text = TEXT.replace('network = "mine"\ndomains', 'network = "absent"\ndomains').replace(
        'network = "resnet20" }}',
        'network = "resnet20", select = "swad", select_option = {{ ratio = 0.2 }}, option = {{ outer_lr = 0.5 }}, '
        'algorithm = "mvrml" }}',
    )
    (command, *_) = grid_of(base, text).missing()
    assert "--select swad --select-option ratio=0.2 --option outer_lr=0.5 --algorithm mvrml" in command

"""Networks that an experiment names: where they are, and what makes those that are missing."""

import pytest

from domainadaptor.lab.experiments.networks import Located
from tests.lab.experiments.small import TEXT, grid_of


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


START = 'network = "mine"\ndomains', 'network = "more"\ndomains'
MORE = '[networks.more]\nstart = "absent"\ntrain = {{ dataset = "pacs", network = "resnet20", epochs = 2 }}\n[rows."unt'


def test_a_network_that_starts_from_one_that_is_missing_asks_for_that_one_and_knows_its_own_training(base):
    grid = grid_of(base, TEXT.replace(*START).replace('[rows."unt', MORE, 1))
    network = grid.places[0].cell.network
    assert "--epochs" not in network.command
    own = "domainadaptor train pacs --network resnet20 --epochs 2 --seed 0 --weights {} --target night"
    assert network.is_trained_by(own.format("pacs-resnet20-32-erm-on-a+b-seed0-0123456789")), (
        "its name is not known here"
    )
    assert not network.is_trained_by(own.format("a-run").replace("--epochs 2", "--epochs 3"))


@pytest.mark.parametrize(
    ("command", "same"),
    [
        ("domainadaptor train pacs --lr 0.1 --epochs 6 --target 'the night'", True),
        ("domainadaptor train pacs --target 'the night' --epochs 6 --lr 0.1", True),
        ("domainadaptor train pacs --lr 6 --epochs 0.1 --target 'the night'", False),
        ("domainadaptor train pacs --lr 0.1 --epochs 12 --target 'the night'", False),
        ("domainadaptor train pacs --lr 0.1 --epochs 6 --target 'the night' --precision bfloat16", False),
        ("domainadaptor train vlcs --lr 0.1 --epochs 6 --target 'the night'", False),
        ("", True),  # somebody's own file, of which nothing is known
    ],
)
def test_two_commands_train_the_same_network_if_all_their_options_are_the_same(command, same):
    network = Located("mine", "mine", training="domainadaptor train pacs --lr 0.1 --epochs 6 --target 'the night'")
    assert network.is_trained_by(command) is same


def test_another_start_is_another_network():
    network = Located("mine", "mine", training="domainadaptor train pacs --weights long-run --epochs 2")
    assert network.is_trained_by("domainadaptor train pacs --epochs 2 --weights long-run")
    assert not network.is_trained_by("domainadaptor train pacs --epochs 2 --weights short-run")


def test_a_start_that_is_there_keeps_its_name_even_if_it_is_that_of_its_plan(base):
    published = '[networks.resnet20]\nnetwork = "resnet20"\n' + MORE.replace('"absent"', '"resnet20"')
    grid = grid_of(base, TEXT.replace(*START).replace('[rows."unt', published, 1))
    assert "--weights resnet20" in grid.places[0].cell.network.training

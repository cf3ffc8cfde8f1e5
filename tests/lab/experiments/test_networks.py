"""Networks that an experiment names: where they are, and what makes those that are missing."""

import pytest

from domainadaptor.lab.experiments.networks import LocatedNetwork, NetworkEntry, Networks
from tests.lab.experiments.small import TEXT, sweep_of


@pytest.mark.parametrize("text", ["{", "[]"])
def test_another_file_called_record_does_no_harm(base, text):
    (base / "record.json").write_text(text)
    assert len(sweep_of(base).runnable()) == 4


def test_every_network_that_is_missing_is_named(base):
    text = TEXT.replace("mine.safetensors", "{{target}}-{{seed}}.safetensors")
    said = " ".join(cell.missing for cell in sweep_of(base, text + "seeds = [0, 1]\n").missing())
    assert all(f"{target}-{seed}.safetensors" in said for target in ("night", "dusk") for seed in (0, 1))


def test_networks_that_are_missing_are_named_with_their_command(base):
    sweep = sweep_of(base, TEXT.replace('network = "mine"\ndomains', 'network = "absent"\ndomains'))
    assert sweep.runnable() == {}
    command = sweep.missing()[0].spec.network.command
    assert command.startswith("domainadaptor train pacs --network resnet20 --seed 0")
    ((run,),) = sweep.plan().tables[0].rows[0].cells["night"]
    assert run.id == ""


def test_options_of_training_are_words_of_its_command(base):
    text = TEXT.replace('network = "mine"\ndomains', 'network = "absent"\ndomains').replace(
        'network = "resnet20" }}',
        'network = "resnet20", select = "swad", select_option = {{ ratio = 0.2 }}, option = {{ outer_lr = 0.5 }}, '
        'algorithm = "mvrml" }}',
    )
    command = sweep_of(base, text).missing()[0].spec.network.command
    for part in ("--select swad", "--select-option ratio=0.2", "--option outer_lr=0.5", "--algorithm mvrml"):
        assert part in command


START = 'network = "mine"\ndomains', 'network = "more"\ndomains'
MORE = '[networks.more]\nstart = "absent"\ntrain = {{ dataset = "pacs", network = "resnet20", epochs = 2 }}\n[rows."unt'


def test_a_network_that_starts_from_one_that_is_missing_knows_its_own_training(base):
    sweep = sweep_of(base, TEXT.replace(*START).replace('[rows."unt', MORE, 1))
    network = sweep.cells[0].spec.network
    assert "No PACS" in network.missing
    assert network.training.settings.epochs == 2
    assert network.training.start.settings.epochs == 30
    assert network.training.target == "night"


def request(train, target="night", seed=0, **more):
    tables = {"mine": {"train": {"dataset": "pacs", **train}, **more}, "long": {"train": {"dataset": "pacs"}}}
    tables["short"] = {"train": {"dataset": "pacs", "epochs": 5}}
    tables["file"] = {"checkpoint": "a.safetensors"}
    entries = {name: NetworkEntry.model_validate(table) for name, table in tables.items()}
    return Networks(entries, None).request("mine", target, seed)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (request({"epochs": 6, "lr": 0.5}), True),
        (request({"lr": 0.5, "epochs": 6, "momentum": 0.9}), True),  # its default
        (request({"lr": 0.5, "epochs": 6, "network": "torchvision:resnet18", "head_lr": 10}), True),
        (request({"lr": 0.25, "epochs": 6}), False),
        (request({"lr": 0.5, "epochs": 12}), False),
        (request({"lr": 0.5, "epochs": 6, "precision": "bfloat16"}), False),
        (request({"lr": 0.5, "epochs": 6, "dataset": "vlcs"}), False),
        (request({"lr": 0.5, "epochs": 6}, target="dusk"), False),
        (request({"lr": 0.5, "epochs": 6}, seed=1), False),
        (request({"lr": 0.5, "epochs": 6}, sources=["night"]), False),
        (request({"lr": 0.5, "epochs": 6}, start="long"), False),
        (None, True),  # a user's own file, of which nothing is known
    ],
)
def test_two_trainings_are_the_same_if_all_their_settings_are(other, same):
    network = LocatedNetwork("mine", "mine", training=request({"lr": 0.5, "epochs": 6}))
    assert network.may_be_trained_by(other) is same
    assert LocatedNetwork("mine", "mine").may_be_trained_by(other)


def test_another_start_is_another_training():
    starts = [request({}, start=name) for name in ("long", "short", "file")]
    assert len({start.model_dump_json() for start in starts}) == 3
    assert starts[2].settings.weights == "a.safetensors"
    assert request({}, start="long") == starts[0]


def test_a_start_that_is_there_is_named_in_the_command(base):
    published = '[networks.resnet20]\nnetwork = "resnet20"\n' + MORE.replace('"absent"', '"resnet20"')
    sweep = sweep_of(base, TEXT.replace(*START).replace('[rows."unt', published, 1))
    assert "--weights resnet20" in sweep.cells[0].spec.network.command

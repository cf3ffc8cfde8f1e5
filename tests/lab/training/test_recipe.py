import os

import pytest
import torch

from domainadaptor.errors import BadOption
from domainadaptor.lab.training.recipe import TrainingRecipe
from tests.conftest import GoldenNet

BASE = TrainingRecipe(dataset="pacs", sources=("photo", "sketch"))


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [("erm", {"tasks": ("rotation", "jigsaw")}), ("arm", {}), ("arm", {"variant": "cml"}), ("mvrml", {})],
)
def test_what_is_trained_besides_the_network_follows_from_the_seed(algorithm, options):
    made = []
    for state in (1, 2):
        torch.manual_seed(state)  # of the process: it must not matter
        recipe = BASE.replace(algorithm=algorithm, options=options, seed=3)
        made.append(recipe.make_algorithm(GoldenNet().requires_grad_(False), 7))
    networks, heads = zip(*((m.network, m.heads) for m in made), strict=True)
    for one, other in zip(heads[0].parameters(), heads[1].parameters(), strict=True):
        assert torch.equal(one, other)
    if options.get("variant") == "cml":
        for one, other in zip(networks[0].context.parameters(), networks[1].context.parameters(), strict=True):
            assert torch.equal(one, other)


def test_names_of_runs_are_short_enough():
    many = tuple(f"hospital number {at}" for at in range(40))
    assert len(BASE.replace(sources=many).id().encode()) < 200
    assert "/" not in BASE.replace(sources=("a/b",)).id()
    birds = "鳥" * 60  # of three bytes each
    assert (
        len(BASE.replace(dataset=birds, sources=(birds,), options={"tasks": ("rotation", "jigsaw")}).id().encode())
        < 200
    )


def test_names_that_are_not_utf8_give_a_path_that_is():
    latin = os.fsdecode(b"h\xf4pital")
    assert BASE.replace(sources=(latin,)).id().encode()
    assert BASE.replace(sources=(latin,)).id() != BASE.replace(sources=(os.fsdecode(b"h\xf6pital"),)).id()


@pytest.mark.parametrize(
    ("weights", "start", "digest"),
    [
        ("pretrained", "", "ab7e1ca091"),
        ("none", "", "ed5c0dcdd2"),
        ("pacs-resnet20-64-erm-on-photo-seed0-298971d7d9", "0123456789ab", "6d7570a0db"),
    ],
)
def test_names_of_runs_stay_as_they_are(weights, start, digest):
    """Records and trained networks are found by them."""
    assert BASE.replace(weights=weights, start=start).id().endswith(f"-on-photo+sketch-seed0-{digest}")


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"lr": 2e-3}, {"sources": ("photo",)}, {"algorithm": "mldg"}, {"options": {"tasks": ("jigsaw",)}},
     {"select": "swad"}, {"select_options": {"checks_per_epoch": 2}}, {"norm": "iabn"}, {"weights": "none"},
     {"head_bias": True}],
)  # fmt: skip
def test_whatever_differs_makes_another_run(change):
    assert BASE.replace(**change).id() != BASE.id()


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"algorithm": "mldq"}, "mldg"),
        ({"options": {"task": ("jigsaw",)}}, "tasks"),
        ({"select": "bst"}, "best"),
        ({"select": "swad", "select_options": {"ration": 0.2}}, "did you mean 'ratio'"),
        ({"select": "swad", "select_options": {"ratio": -1.0}}, "at least 0"),
        ({"select": "last", "select_options": {"ratio": 0.2}}, "last has no option 'ratio'"),
        ({"norm": "ibn"}, "iabn"),
        ({"lr": 0.0}, "greater than 0"),
        ({"epochs": 0}, "greater than or equal to 1"),
        ({"schedule": "cos"}, "cosine"),
        ({"precision": "half"}, "bfloat16"),
        ({"sources": ("photo", "photo")}, "given twice"),
    ],
)
def test_mistakes_are_explained(change, hint):
    with pytest.raises(BadOption, match=hint):
        BASE.replace(**change)


def test_a_plan_is_the_recipe_of_the_command(tmp_path):
    from domainadaptor.lab.data.registry import open_dataset
    from domainadaptor.lab.training.recipe import make_recipe
    from tests.lab.experiments.pictures import make_pictures

    dataset = open_dataset("folders", make_pictures(tmp_path / "pictures"))
    whole = make_recipe(dataset, tmp_path, network="resnet20", size=12, head_lr=2, lr=1, task=["rotation"])
    typed = make_recipe(dataset, tmp_path, network="cifar:resnet20", size=12, head_lr=2.0, lr=1.0, task=("rotation",))
    assert whole.id() == typed.id()
    assert whole.options == {"tasks": ["rotation"]}
    with pytest.raises(BadOption, match="given twice"):
        make_recipe(dataset, tmp_path, task=["jigsaw"], option={"tasks": "rotation"})
    with pytest.raises(BadOption, match="epochs"):
        make_recipe(dataset, tmp_path, epoch=3)


def test_only_registered_algorithms_are_accepted():
    with pytest.raises(BadOption, match="only registered names"):
        BASE.replace(algorithm="os:getcwd")


def test_whole_numbers_and_their_floats_are_the_same_run():
    assert BASE.replace(lr=1).id() == BASE.replace(lr=1.0).id()
    one, other = (
        BASE.replace(algorithm="mldg", options={"beta": beta}, select="swad", select_options={"ratio": beta})
        for beta in (2, 2.0)
    )
    assert one.id() == other.id()

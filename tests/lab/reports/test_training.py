from domainadaptor.lab.reports.documents import render
from domainadaptor.lab.reports.figures import COLORS
from domainadaptor.lab.reports.training import training_rows, training_tables
from tests.lab.reports.trainings import RECORDS, training


def markdown(rows):
    return render("training.md.j2", tables=training_tables(rows))


def test_rows_gather_seeds_and_domains():
    found = training_rows(RECORDS)
    assert [row.recipe for row in found] == ["ERM", "ERM, a alone", "MLDG"]
    assert found[0].targets() == {"b": [40.0], "c": [50.0, 60.0]}
    assert list(found[0].seeds()) == [0, 1]
    assert found[0].minutes() == 2


def test_networks_that_start_from_others_say_so():
    start = "pacs-resnet20-64-erm-on-a+b-seed1-0123456789"
    begun = [training("c", 60.0, seed=1, name=start) if entry.recipe.seed == 1 else entry for entry in RECORDS]
    found = training_rows([training("c", 65.0, algorithm="mldg", seed=1, weights=start, name="z"), *begun])
    assert [row.recipe for row in found] == ["ERM", "ERM, a alone", "MLDG", "MLDG, 2 + 2 epochs"]
    text = markdown(found)
    assert "start from the network of the same target and seed" in text
    assert "ERM, seed 0: source validation 90.0, b 40.0, c 50.0, mean 45.0." in text
    assert "ERM, seed 1: source validation 90.0, c 60.0, mean 60.0." in text
    assert "of the same target and seed" not in markdown(training_rows(RECORDS))


def test_longer_training_is_a_row_of_its_own_and_so_is_what_starts_from_it():
    plain = [
        training("c", 50.0 + seed, seed=seed, epochs=epochs, lr=epochs / 100, name=f"pacs-resnet20-{epochs}-{seed}")
        for epochs in (6, 12)
        for seed in (0, 1)
    ]
    more = [training("c", 65.0, algorithm="mldg", seed=seed, weights=f"pacs-resnet20-{start}", name=f"z{seed}")
            for seed, start in ((0, "12-0"), (1, "gone"))]  # fmt: skip
    found = training_rows([*plain, *more])
    titles = ["ERM, 12 epochs", "ERM, 6 epochs", "MLDG, 12 + 2 epochs", "MLDG, 2 more epochs"]
    assert [row.recipe for row in found] == titles
    assert [row.start for row in found] == [True, False, False, False]
    text = markdown(found)
    assert "ERM, 12 epochs, seed 1: source validation 90.0, c 51.0, mean 51.0." in text
    assert "ERM, 6 epochs, seed" not in text


def test_recipes_of_one_title_are_told_apart_by_their_settings():
    found = training_rows([training("c", 1.0), training("c", 2.0, lr=0.5, name="other")])
    assert [row.recipe for row in found] == ["ERM (lr 0.1)", "ERM (lr 0.5)"]


def test_a_network_of_all_domains_is_a_row_without_targets():
    (row,) = training_rows([training("", 0.0, sources=("a", "b", "c"))])
    assert (row.targets(), row.validation()) == ({}, [90.0])
    assert "| ERM | 1 | 90.0 |  | 2.0 |" in markdown([row])


def test_the_table_has_means_deviations_and_commands():
    text = markdown(training_rows(RECORDS))
    assert "## pacs, resnet20 at 64x64" in text
    assert "| ERM | 2 | 90.0 ± 0.0 | 40.0 | 55.0 ± 5.0 | 47.5 | 2.0 |" in text
    assert "| MLDG | 1 | 90.0 |  | 70.0 |  | 2.0 |" in text
    assert text.count("domainadaptor train pacs --algorithm mldg") == 1
    assert "For research only." in text


def test_the_colors_can_be_told_apart_by_color_blind_people():
    assert set(COLORS) == set("#000000 #E69F00 #56B4E9 #009E73 #F0E442 #0072B2 #D55E00 #CC79A7".split())

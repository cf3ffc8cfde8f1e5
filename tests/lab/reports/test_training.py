from domainadaptor.lab.reports.documents import render
from domainadaptor.lab.reports.figures import COLORS
from domainadaptor.lab.reports.training import training_tables
from tests.lab.reports.trainings import RECORDS, training


def markdown(records):
    return render("training.md.j2", tables=training_tables(records))


def recipes(records):
    return [line.label for table in training_tables(records) for line in table.printed.lines]


def test_rows_gather_seeds_and_domains():
    assert recipes(RECORDS) == ["ERM", "ERM, a alone", "MLDG"]


def test_networks_that_start_from_others_say_so():
    start = "pacs-resnet20-64-erm-on-a+b-seed1-0123456789"
    begun = [training("c", 60.0, seed=1, name=start) if entry.recipe.seed == 1 else entry for entry in RECORDS]
    records = [training("c", 65.0, algorithm="mldg", seed=1, weights=start, name="z"), *begun]
    assert recipes(records) == ["ERM", "ERM, a alone", "MLDG", "MLDG, 2 + 2 epochs"]
    assert "start from the network of the same target and seed" in markdown(records)
    assert "of the same target and seed" not in markdown(RECORDS)


def test_longer_training_is_a_row_of_its_own_and_so_is_what_starts_from_it():
    plain = [
        training("c", 50.0 + seed, seed=seed, epochs=epochs, lr=epochs / 100, name=f"pacs-resnet20-{epochs}-{seed}")
        for epochs in (6, 12)
        for seed in (0, 1)
    ]
    more = [training("c", 65.0, algorithm="mldg", seed=seed, weights=f"pacs-resnet20-{start}", name=f"z{seed}")
            for seed, start in ((0, "12-0"), (1, "gone"))]  # fmt: skip
    titles = ["ERM, 12 epochs", "ERM, 6 epochs", "MLDG, 12 + 2 epochs", "MLDG, 2 more epochs"]
    assert recipes([*plain, *more]) == titles


def test_recipes_of_one_title_are_told_apart_by_their_settings():
    records = [training("c", 1.0), training("c", 2.0, lr=0.5, name="other")]
    assert recipes(records) == ["ERM (lr 0.1)", "ERM (lr 0.5)"]


def test_a_network_of_all_domains_is_a_row_without_targets():
    assert "| ERM | 1 | 90.0 |  | 2.0 |" in markdown([training("", 0.0, sources=("a", "b", "c"))])


def test_the_table_has_means_deviations_and_commands():
    text = markdown(RECORDS)
    assert "## pacs, resnet20 at 64x64" in text
    assert "| ERM | 2 | 90.0 ± 0.0 | 40.0 | 55.0 ± 5.0 | 47.5 | 2.0 |" in text
    assert "| MLDG | 1 | 90.0 |  | 70.0 |  | 2.0 |" in text
    assert text.count("domainadaptor train pacs --algorithm mldg") == 1
    assert "For research only." in text


def test_the_colors_can_be_told_apart_by_color_blind_people():
    assert set(COLORS) == set("#000000 #E69F00 #56B4E9 #009E73 #F0E442 #0072B2 #D55E00 #CC79A7".split())

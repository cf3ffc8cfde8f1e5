"""Experiment files: what they expand to, and every mistake at once."""

import re
from pathlib import Path

import pytest

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.registry import published_images
from domainadaptor.lab.evaluation.protocols import PROTOCOLS
from domainadaptor.lab.experiments.networks import LocatedNetwork
from domainadaptor.lab.experiments.spec import FILES, ExperimentFile, experiment_files, find_experiment, read_experiment
from domainadaptor.lab.experiments.tables import RowSpec, TableSpec

VIEWS = ("accuracy", "accuracy-curve")
DOCUMENT = Path(__file__).parents[3] / "docs" / "experiments.md"

GOOD = """
title = "A table"
[networks.mine]
checkpoint = "nets/{target}-{seed}.safetensors"
[networks.published]
network = "resnet20"
[rows."untouched"]
method = "source"
[rows."mixed"]
method = "adamixbn"
fold = false
[rows."mixed, paper's"]
method = "adamixbn"
alpha = "paper"
network = "published"
images = 5
[[table]]
title = "One"
dataset = "pacs"
network = "mine"
domains = ["photo", "sketch"]
seeds = [0, 3]
images = 20
"""


@pytest.fixture
def read(tmp_path):
    def write(text):
        path = tmp_path / "table.toml"
        path.write_text(text)
        return read_experiment(path, tmp_path / "runs", views=VIEWS)

    return write


def located(asked):
    def locate(network, target, seed):
        asked.append((network, target, seed))
        return LocatedNetwork(network, f"{network}-{target}-{seed}")

    return locate


def test_the_sample_names_what_is_shared_and_the_rows_that_differ(read):
    (table,) = read(GOOD).tables
    assert table.sample() == "20 seeded images per domain, 2 seeds, batches of 64, mixed, paper's with images 5"
    swept = GOOD.replace("images = 20", 'sweep = { option = "images", values = [16, 32] }').replace("images = 5\n", "")
    (table,) = read(swept).tables
    assert table.sample() == "2 seeds, batches of 64"


def test_a_cell_for_each_row_domain_and_seed(read):
    (table,) = read(GOOD).tables
    asked = []
    made = [
        cell
        for row in table.lines
        for column in table.columns()
        for seed in table.seeds
        for cell in table.runs(row, column, seed, located(asked))
    ]
    assert len(made) == 3 * 2 * 2
    assert asked[:4] == [("mine", "photo", 0), ("mine", "photo", 3), ("mine", "sketch", 0), ("mine", "sketch", 3)]
    assert asked[-1] == ("published", "sketch", 3)
    assert made[4].options == {"fold": False}
    assert made[4].images == 20
    assert made[-1].images == 5
    assert {cell.method for cell in made} == {"source", "adamixbn"}


def test_a_sweep_varies_what_a_row_leaves_open(read):
    swept = GOOD + '\nsweep = { option = "alpha", values = [0.1, 0.9] }\n'
    (table,) = read(swept).tables
    assert table.columns() == ["0.1", "0.9"]
    options = [
        [cell.options for cell in table.runs(row, column, 0, located([]))]
        for row in table.lines
        for column in table.columns()
    ]
    one = [{}, {}]
    assert options == [
        one,
        one,
        [{"fold": False, "alpha": 0.1}] * 2,
        [{"fold": False, "alpha": 0.9}] * 2,
        [{"alpha": "paper"}] * 2,
        [{"alpha": "paper"}] * 2,
    ]


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [("batch_size", 7, lambda c: c.batch_size), ("subset", 32, lambda c: c.protocol_options["subset"])],
)
def test_a_sweep_over_batches_and_protocols(read, option, value, found):
    swept = GOOD + f'\nprotocol = "few-data"\nsweep = {{ option = "{option}", values = [{value}] }}\n'
    (table,) = read(swept).tables
    (cell, _) = table.runs(table.lines[0], str(value), 0, located([]))
    assert found(cell) == value


def test_groups_are_one_stream_each(read):
    groups = 'protocol = "mixed-images"\ngroups = { both = ["photo", "sketch"], P = ["photo"] }'
    text = GOOD.replace('domains = ["photo", "sketch"]', groups)
    (table,) = read(text.replace('network = "mine"', 'network = "published"')).tables
    assert table.columns() == ["both", "P"]
    (cell,) = table.runs(table.lines[0], "both", 0, located([]))
    assert cell.domains == ("photo", "sketch")


def test_mistakes_are_said_together_first_of_names_and_values_then_of_what_does_not_fit(read):
    text = (
        GOOD.replace('method = "adamixbn"\nfold', 'method = "adamixbm"\nfold')
        .replace('alpha = "paper"', 'alpha = "papr"')
        .replace('network = "mine"', 'network = "min"\nshow = "acuracy"\nseedz = [1]\nbatch_size = "64"')
        .replace('title = "A table"', 'titel = "A table"')
    )
    with pytest.raises(BadFile) as raised:
        read(text)
    said = str(raised.value)
    for part in ("titel", "row 'mixed': unknown method 'adamixbm'", "adamixbn", "papr", "table 1: 'seedz'",
                 "batch_size", "valid integer", "nothing was run"):  # fmt: skip
        assert part in said, part
    text = GOOD.replace('network = "mine"', 'network = "min"\nshow = "acuracy"').replace('"pacs"', '"pcs"')
    text = text.replace("images = 5", 'protocol = "few"').replace("images = 20", 'rows = ["mixd", "mixed, paper\'s"]')
    with pytest.raises(BadFile) as raised:
        read(text)
    said = str(raised.value)
    for part in ("network 'min'", "'acuracy'", "'pcs'", "Unknown protocol 'few'", "row 'mixd'"):
        assert part in said, part


def test_wrong_options_of_a_training_are_said(read):
    wrong = """start = "nowhere"
    train = { dataset = "pacs", lr = -3, epochs = "x", precision = "float99" }
    """
    with pytest.raises(BadFile) as raised:
        read(f"{GOOD}[networks.wrong]\n{wrong}")
    said = str(raised.value)
    for part in ("network 'wrong'", "lr=-3", "epochs='x'", "'float99'"):
        assert part in said, part
    for name, part in (("dataset", "pcas"), ("network", "resnetfoo"), ("algorithm", "mldgg"), ("select", "swadd")):
        table = ", ".join(f'{key} = "{value}"' for key, value in {"dataset": "pacs", name: part}.items())
        with pytest.raises(BadFile, match=part):
            read(f"{GOOD}[networks.wrong]\ntrain = {{ {table} }}")
    with pytest.raises(BadFile, match="there is no such network"):
        read(f'{GOOD}[networks.wrong]\nstart = "nowhere"\ntrain = {{ dataset = "pacs" }}')


def test_a_group_of_several_needs_one_network_for_all(read):
    groups = 'protocol = "mixed-images"\ngroups = { both = ["photo", "sketch"] }'
    with pytest.raises(BadFile, match="'mine' is a different network for each target"):
        read(GOOD.replace('domains = ["photo", "sketch"]', groups))


@pytest.mark.parametrize(
    ("name", "found"),
    [("comparison", "comparison"), ("table-3", "comparison"), ("Table 3", "comparison"), ("figure 5c", "batch-sizes"),
     ("figure_5A", "alpha-by-layer")],
)  # fmt: skip
def test_an_experiment_of_the_package_is_found_by_its_name_or_its_place_in_the_paper(name, found):
    assert find_experiment(name) == FILES / f"{found}.toml"


def test_a_name_of_no_experiment_is_explained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadOption, match="did you mean 'comparison'"):
        find_experiment("comparson")
    with pytest.raises(BadOption, match="No experiment 'networks'"):
        find_experiment("networks")
    assert find_experiment("mine/own.toml") == Path("mine/own.toml")  # whether it is there, reading it tells
    (tmp_path / "comparison").write_text(GOOD)
    assert find_experiment("comparison") == Path("comparison")


def test_what_is_no_toml_is_said(read, tmp_path):
    with pytest.raises(BadFile, match="not valid TOML"):
        read("title = ")
    with pytest.raises(BadFile, match="--list"):
        read_experiment(tmp_path / "none.toml", tmp_path)


@pytest.mark.parametrize("path", experiment_files(), ids=lambda path: path.stem)
def test_the_experiments_of_this_project_are_well_formed(path, tmp_path):
    experiment = read_experiment(path, tmp_path)
    assert experiment.tables
    assert experiment.about
    for table in experiment.tables:
        grouped = {domain for stream in table.groups.values() for domain in stream}
        assert {*table.domains, *grouped, *table.sources} <= published_images(table.dataset).keys(), table.title


def test_the_documentation_has_a_good_example_and_every_key(tmp_path):
    text = DOCUMENT.read_text()
    (tmp_path / "example.toml").write_text(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1])
    assert read_experiment(tmp_path / "example.toml", tmp_path).tables
    for word in (*TableSpec.model_fields, *RowSpec.model_fields, *ExperimentFile.model_fields, *PROTOCOLS):
        assert re.search(rf"\b{word}\b", text), word


def test_there_is_an_experiment_for_every_table_of_the_paper(tmp_path):
    import csv

    numbers = Path(__file__).parents[3] / "src" / "domainadaptor" / "lab" / "reports" / "paper.csv"
    with numbers.open(newline="") as file:
        rows = list(csv.DictReader(file))
    known = {(row["table"], row["backbone"], row["method"]) for row in rows}
    shown = set()
    for path in experiment_files():
        for table in read_experiment(path, tmp_path).tables:
            for row in table.lines if table.paper else ():
                if row.paper is not None:
                    name = row.paper if isinstance(row.paper, str) else row.paper.method
                    assert (table.paper.table, table.paper.backbone, name) in known, (path.name, row.label)
            if table.paper:
                shown.add(table.paper.table)
    assert shown == {table for table, _, _ in known}


MIXED = 'method = "adamixbn"\nfold = false'
TOP = 'title = "A table"'
DOMAINS = 'domains = ["photo", "sketch"]'
MINE = 'checkpoint = "nets/{target}-{seed}.safetensors"'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('network = "mine"', 'network = "min"', "mine"),
        ("images = 20", 'protocol = "few"', "few-data"),
        ("images = 20", "images = 0", "greater than or equal to 1"),
        ("images = 20", 'sweep = { option = "alhpa", values = [1] }', "alpha"),
        ("images = 20", 'sweep = { option = "alpha", values = [7] }', "alpha"),
        ("images = 20", 'show = "curve"', "accuracy-curve"),
        ("seeds = [0, 3]", "seeds = [-1]", "seeds"),
        ("images = 20", 'rows = ["mixd"]', "mixed"),
        ("fold = false", "fould = false", "fold"),
        ('network = "resnet20"', "", "expected one of"),
        ('network = "resnet20"', 'network = "resnet20"\nwheights = "none"', "weights"),
        (MIXED, MIXED + "\nlr = 0.5", "lr=0.5 has no effect with loss=None: there is no step without a loss"),
        (MIXED, MIXED + "\nguard = 1", "guard=1: expected True or False"),
        (TOP, "title = 3", "title = 3: .*valid string"),
        (TOP, f'{TOP}\nremarks = "abc"', "remarks"),
        ("[[table]]", "[table]", "table = .*valid list"),
        ("images = 20", "rows = []", "at least one"),
        ("images = 20", 'rows = ["mixed", "mixed"]', "different values"),
        (MIXED, 'method = "adamixbn"\nprotocol = "few"', "few-data"),
        (MIXED, 'method = "adamixbn"\nprotocol_options = { subset = 3 }', "no option 'subset'"),
        (MIXED, 'method = "adamixbn"\npaper = 3', "valid string"),
        (MIXED, 'method = "adamixbn"\npaper = { method = "x" }', "column is missing"),
        (MIXED, 'measure = "curves"', "loss-curves"),
        (MIXED, 'measure = "loss-curves"\nscal = 3.0', "scale"),
        (MIXED, 'method = "eata"\nlr = nan', "finite number"),
        (MIXED, 'method = "eata"\nlr = "fast"', "lr='fast'"),
        (MIXED, 'method = "adabn-source-and-test"\nsource_weigth = 1', "has no option"),
        (MIXED, 'method = "eata"\nsource_images = "here"', "cannot be set in a file"),
        (DOMAINS, 'groups = { both = "photo" }', "valid tuple"),
        (DOMAINS, "groups = { both = [] }", "at least one"),
        (DOMAINS, DOMAINS + '\ngroups = { both = ["photo"] }', "domains or groups"),
        (DOMAINS, 'groups = { both = ["photo", "sketch"] }', "one domain at a time"),
        ("seeds = [0, 3]", "seeds = [99999999999999999999]", "seeds"),
        ("seeds = [0, 3]", "order = -1", "greater than or equal to 0"),
        ("images = 20", 'sweep = { option = ["alpha"], values = [1] }', "alpha"),
        ("images = 20", 'sweep = { option = "batch_size", values = [0] }', "at least 1"),
        ("images = 20", 'sweep = { option = "alpha", values = [0.1, 0.1] }', "different values"),
        ("images = 20", "paper = { x = 1 }", "paper.table is missing"),
        ("images = 20", 'data_options = { root = "x" }', "no option 'root'"),
        ("images = 20", "data_options = { seed = 2020-01-01 }", "valid JSON"),
        (MINE, 'checkpoint = "{tagret}.safetensors"', "no braces but {target} and {seed}"),
        (MINE, 'train = "pacs"', "valid dictionary"),
        (MINE, 'train = { dataset = "pacs", epochs = [1] }', "a valid integer"),
        (MINE, 'train = { dataset = "pacs", epoch = 1 }', "epochs"),
        (MINE, 'train = { dataset = "pacs", select_option = { ratio = 1 } }', "best has no option 'ratio'"),
        (MINE, 'train = { dataset = "pacs" }\nstart = "mine"', "leads back to itself"),
        (MINE, 'network = "resnet20"\nsize = 0', "size=0"),
        (MINE, 'network = "resnet20"\nresize = "stretch"', "crop, squash"),
        (MINE, 'network = "resnet20"\nmean = [0.5]', "three numbers"),
        (MINE, 'network = "resnet20"\nclasses = "nowhere.txt"', "nowhere.txt"),
        (MINE, 'train = { dataset = "pacs" }\nsize = 64', "a network that is trained has its own"),
    ],
)
def test_each_mistake_is_explained(read, old, new, said):
    assert old in GOOD
    with pytest.raises(BadFile, match=said):
        read(GOOD.replace(old, new))


@pytest.mark.parametrize("text", ["networks = 1", "networks = [1]", "rows = ['a']", "table = 1", "table = [1]"])
def test_whole_parts_of_another_kind_are_mistakes_too(read, text):
    with pytest.raises(BadFile, match=f"{text.split()[0]}.*(valid|expected)"):
        read(f"title = 'x'\n{text}")


def test_a_row_inherits_options_that_its_own_protocol_has_to_know(read):
    text = GOOD.replace(MIXED, 'method = "adamixbn"\nprotocol = "continual"')
    with pytest.raises(BadFile, match="row 'mixed': continual has no option 'subset'"):
        read(text + 'protocol = "few-data"\nprotocol_options = { subset = 3 }\n')


def test_a_measurement_has_its_own_options(read):
    text = GOOD.replace(MIXED, 'measure = "loss-curves"\nscale = 3.0')
    (table,) = read(text + 'rows = ["mixed"]\n').tables
    (cell,) = table.runs(table.lines[0], "photo", 0, located([]))
    assert (cell.measure, cell.options) == ("loss-curves", {"scale": 3.0})
    assert table.view() == "loss-curves"  # which is how it is shown unless the table says so itself


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('show = "loss-curves"\nrows = ["mixed"]', "show = 'loss-curves' does not fit measure = ''"),
        ('show = "accuracy"\nrows = ["norms"]', "show = 'accuracy' does not fit measure = 'classifier-norms'"),
        ('rows = ["norms", "mixed"]', "expected rows of one measurement, or of none; got 'classifier-norms', ''"),
    ],
)
def test_what_is_measured_and_what_is_shown_belong_together(read, lines, said):
    with pytest.raises(BadFile, match=re.escape(said)):
        read(f'{GOOD}{lines}\n[rows.norms]\nmeasure = "classifier-norms"')


@pytest.mark.parametrize("name", ["index", "my table", "[x]"])
def test_a_file_whose_name_a_report_cannot_use_is_refused(tmp_path, name):
    path = tmp_path / f"{name}.toml"
    path.write_text(GOOD)
    with pytest.raises(BadFile, match="rename the file"):
        read_experiment(path, tmp_path)


def test_a_file_imports_no_code(read):
    with pytest.raises(BadFile, match="only registered names"):
        read(GOOD.replace(MIXED, 'method = "os:getcwd"'))
    with pytest.raises(BadFile, match="only registered names"):
        read(GOOD.replace(MIXED, 'measure = "os:getcwd"'))

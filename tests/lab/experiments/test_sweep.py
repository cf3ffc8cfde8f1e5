"""Grids: each cell once, whatever happens in between."""

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import domainadaptor as da
from domainadaptor.errors import BadFile
from domainadaptor.lab.experiments import sweep as grids
from domainadaptor.lab.experiments.run_spec import id_of
from domainadaptor.lab.experiments.runner import Workshop
from domainadaptor.lab.experiments.store import Store
from domainadaptor.lab.experiments.sweep import Watcher, kept, run_all
from domainadaptor.options import OptionInfo
from tests.lab.experiments.pictures import make_checkpoint
from tests.lab.experiments.small import SILENT, TEXT, grid_of, records_of


def test_a_record_for_each_cell_and_a_plan_that_names_them(base):
    store = Store(base / "results")
    assert run_all(grid_of(base), store, SILENT) == {}
    records = records_of(store)
    plan = json.loads((base / "results" / "plans" / "small.json").read_text())
    named = {name for row in plan["tables"][0]["rows"] for cell in row["cells"].values() for name in cell}
    assert named == set(records)
    assert len(records) == 4
    for name, record in records.items():
        assert id_of(record["run"]) == record["id"] == name
        assert record["run"]["checkpoint"]["sources"] == ["day", "dusk"]
        assert record["environment"]["torch"] == torch.__version__


def test_what_is_done_is_not_run_again(base, monkeypatch):
    store = Store(base / "results")
    run_all(grid_of(base), store, SILENT)
    before = {name: (base / "results" / "records" / f"{name}.json").stat().st_mtime_ns for name in records_of(store)}
    monkeypatch.setattr(Workshop, "measure", lambda *_: pytest.fail("a cell was run again"))
    run_all(grid_of(base), store, SILENT)
    after = {name: (base / "results" / "records" / f"{name}.json").stat().st_mtime_ns for name in records_of(store)}
    assert before == after


def test_a_method_with_another_default_is_run_again_and_only_it(base, monkeypatch):
    store = Store(base / "results")
    run_all(grid_of(base), store, SILENT)
    was = da.method_info

    def with_defaults(name, changed):
        defaults = {option: OptionInfo(option, "", value, "") for option, value in changed.items()}
        return replace(was(name), options={**was(name).options, **defaults})

    # A new option is no other method: those records stay.
    # lr is in the row.
    monkeypatch.setattr(da, "method_info", lambda name: with_defaults(name, {"brand_new": 1, "lr": 1.0}))
    ran = []
    watcher = Watcher(lambda cell, *_: ran.append(cell.method), lambda *_: None, lambda *_: None)
    run_all(grid_of(base), store, watcher)
    assert ran == []
    changed = {"tent": {"momentum": 0.5}}
    monkeypatch.setattr(da, "method_info", lambda name: with_defaults(name, changed.get(name, {})))
    run_all(grid_of(base), store, watcher)
    assert ran == ["tent", "tent"]
    run_all(grid_of(base), store, watcher)
    assert ran == ["tent", "tent"]


def test_interrupted_anywhere_it_goes_on_and_ends_the_same(base, monkeypatch):
    whole, parts = Store(base / "whole"), Store(base / "parts")
    run_all(grid_of(base), whole, SILENT)
    measure = Workshop.measure
    ran = []

    def stop_after_one(self, cell, progress):
        if len(ran) % 2 == 1:
            ran.append(None)
            raise KeyboardInterrupt
        ran.append(cell)
        return measure(self, cell, progress)

    monkeypatch.setattr(Workshop, "measure", stop_after_one)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run_all(grid_of(base), parts, SILENT)
    run_all(grid_of(base), parts, SILENT)
    assert sum(cell is not None for cell in ran) == 4
    first, second = records_of(whole), records_of(parts)
    assert first.keys() == second.keys()
    for name in first:
        assert first[name]["scores"] == second[name]["scores"]


def test_a_cell_that_fails_is_recorded_and_the_rest_goes_on(base, monkeypatch):
    measure = Workshop.measure

    def fail_for_tent(self, cell, progress):
        if cell.method == "tent" and cell.domains == ("night",):
            raise RuntimeError("out of memory\nand more")
        return measure(self, cell, progress)

    store = Store(base / "results")
    with monkeypatch.context() as patched:
        patched.setattr(Workshop, "measure", fail_for_tent)
        failed = run_all(grid_of(base), store, SILENT)
    assert list(failed.values()) == ["RuntimeError: out of memory"]
    assert sum("failed" in record for record in records_of(store).values()) == 1
    assert run_all(grid_of(base), store, SILENT) == {}
    assert not any("failed" in record for record in records_of(store).values())


@pytest.mark.parametrize("spoil", [KeyError("odd"), "nan"], ids=["any error", "a number that cannot be written"])
def test_whatever_a_cell_does_the_rest_goes_on(base, monkeypatch, spoil):
    measure = Workshop.measure

    def odd(self, cell, progress):
        if cell.method == "source":
            if isinstance(spoil, KeyError):
                raise spoil
            return measure(self, cell, progress) | {"memory": float("nan")}
        return measure(self, cell, progress)

    monkeypatch.setattr(Workshop, "measure", odd)
    store = Store(base / "results")
    assert len(run_all(grid_of(base), store, SILENT)) == 2
    assert sum("failed" in record for record in records_of(store).values()) == 2
    assert len(records_of(store)) == 4


def test_a_checkpoint_that_is_damaged_fails_its_cells_and_no_others(base):
    whole = (base / "mine.safetensors").read_bytes()
    (base / "broken.safetensors").write_bytes(whole[:-5])
    text = TEXT.replace(
        "[networks.absent]", '[networks.broken]\ncheckpoint = "{base}/broken.safetensors"\n[networks.absent]'
    )
    text = text.replace('method = "source"', 'method = "source"\nnetwork = "broken"')
    store = Store(base / "results")
    failed = run_all(grid_of(base, text), store, SILENT)
    assert len(failed) == 2
    assert all("not a whole safetensors file" in why for why in failed.values())
    assert sorted("failed" in record for record in records_of(store).values()) == [False, False, True, True]
    (base / "broken.safetensors").write_bytes(whole)  # it is another file, so its cells are others
    assert run_all(grid_of(base, text), store, SILENT) == {}


def test_a_data_set_that_raises_anything_leaves_the_rest_alone(base, monkeypatch):
    monkeypatch.setattr(Workshop, "fingerprint", lambda *_: 1 / 0)
    grid = grid_of(base)
    assert {place.missing for place in grid.places} == {"ZeroDivisionError: division by zero"}


def test_a_cell_that_another_process_tried_in_vain_meanwhile_is_left_to_the_next_run(base, monkeypatch):
    store, other = Store(base / "results"), Store(base / "results")
    grid = grid_of(base)
    _, second, *_ = grid.runnable()
    measure = Workshop.measure
    ran = []

    def meanwhile(self, cell, progress):
        ran.append(cell)
        if len(ran) == 1:  # the other process fails at the next cell
            other.write(grids._attempt(grid.runnable()[second], second, Failing(self), SILENT))
        return measure(self, cell, progress)

    class Failing:
        def __init__(self, workshop):
            self.run_of, self.device = workshop.run_of, workshop.device

        def measure(self, *_):
            raise RuntimeError("no memory")

    monkeypatch.setattr(Workshop, "measure", meanwhile)
    assert run_all(grid, store, SILENT) == {second: "RuntimeError: no memory"}
    assert len(ran) == 3
    assert run_all(grid_of(base), store, SILENT) == {}
    assert len(ran) == 4


def test_cells_that_cannot_run_any_more_keep_their_records_in_the_plan(base):
    store = Store(base / "results")
    run_all(grid_of(base), store, SILENT)
    before = store.read_plan("small")
    (base / "mine.safetensors").rename(base / "gone.safetensors")
    grid = grid_of(base)
    assert not grid.runnable()
    grid.write_plan(store)
    after = store.read_plan("small")
    assert [row["cells"] for row in after["tables"][0]["rows"]] == [row["cells"] for row in before["tables"][0]["rows"]]
    changed = grid_of(base, TEXT.replace("lr = 0.05", "lr = 0.06"))
    changed.write_plan(store)
    rows = {row["label"]: row["cells"] for row in store.read_plan("small")["tables"][0]["rows"]}
    assert rows["untouched"] == before["tables"][0]["rows"][0]["cells"]
    assert rows["Tent"] == {"night": [None], "dusk": [None]}, "of another rate there is no record"


def test_domains_that_are_not_there_are_said_before_anything_runs(base):
    text = TEXT.replace('"night", "dusk"', '"nite", "dusk"') + 'sources = ["dya"]\n'
    with pytest.raises(BadFile) as raised:
        grid_of(base, text)
    for part in ("'nite'", "night", "'dya'", "day"):
        assert part in str(raised.value)


def test_commands_of_a_plan_put_records_where_it_lies(base):
    import shlex

    row = grid_of(base).plan(base / "a place")["tables"][0]["rows"][0]
    assert shlex.split(row["commands"]["night"][0])[-2:] == ["--output", str(base / "a place")]


def test_other_weights_or_images_are_other_cells(base):
    first = set(grid_of(base).runnable())
    make_checkpoint(base / "mine.safetensors", sources=("day",))
    second = set(grid_of(base).runnable())
    (base / "pictures" / "night" / "cat" / "0.png").unlink()
    third = set(grid_of(base).runnable())
    assert not first & second
    assert not second & third


def _run(base, ran):
    measure = Workshop.measure

    def counted(self, cell, progress=lambda *_: None):
        ran.put(cell.command())
        return measure(self, cell, progress)

    Workshop.measure = counted
    torch.set_num_threads(1)
    grids._AGAIN = 0.05
    run_all(grid_of(base), Store(base / "results"), SILENT)


def test_two_processes_never_do_a_cell_twice(base):
    grid_of(base)
    context = multiprocessing.get_context("spawn")
    ran = context.Queue()
    both = [context.Process(target=_run, args=(base, ran)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    commands = [ran.get(timeout=5) for _ in range(4)]
    assert len(set(commands)) == 4
    assert ran.empty()
    assert len(records_of(Store(base / "results"))) == 4


def test_a_cell_that_another_process_is_at_is_waited_for(base, monkeypatch):
    grid, store = grid_of(base), Store(base / "results")
    name, cell = next(iter(grid.runnable().items()))
    record = grid.workshop.measure(cell, lambda *_: None)
    other = store.claim(name)
    assert other.__enter__()

    def other_ends(_):
        store.write(record)
        other.__exit__(None, None, None)

    monkeypatch.setattr(grids.time, "sleep", other_ends)
    assert kept(store, name, cell, lambda: pytest.fail("it was measured twice")) == record


def test_a_sweep_lists_the_cells_of_all_domains_a_seed(base):
    text = TEXT + 'rows = ["Tent"]\nsweep = {{ option = "lr", values = [0.01, 0.1] }}\n'
    grid = grid_of(base, text.replace("lr = 0.05\n", ""))
    (table,) = grid.plan()["tables"]
    assert table["columns"] == ["0.01", "0.1"]
    assert not table["mean"]
    assert [len(cell) for cell in table["rows"][0]["cells"].values()] == [1, 1]
    assert all(len(entry) == 2 for cell in table["rows"][0]["cells"].values() for entry in cell)


def test_a_disk_that_is_full_ends_the_run_with_a_message(base, monkeypatch):
    store = Store(base / "results")
    grid = grid_of(base)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BadFile, match="No space left"):
        run_all(grid, store, SILENT)
    assert list((Path(base) / "results" / "records").iterdir()) == []

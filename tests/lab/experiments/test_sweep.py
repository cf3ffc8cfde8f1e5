"""Sweeps: each run once, whatever happens in between."""

import multiprocessing

import pytest
import torch

from domainadaptor.catalog import method_info
from domainadaptor.errors import BadFile
from domainadaptor.lab.experiments import runner as runners
from domainadaptor.lab.experiments import sweep as sweeps
from domainadaptor.lab.experiments.runner import Runner
from domainadaptor.lab.experiments.sweep import RunProgress, run_once, run_sweep
from domainadaptor.lab.records.store import Store
from tests.lab.experiments.pictures import make_checkpoint
from tests.lab.experiments.small import SILENT, TEXT, sweep_of


def ids(plan):
    return {
        (row.label, column): [run.id for seed in seeds for run in seed]
        for table in plan.tables
        for row in table.rows
        for column, seeds in row.cells.items()
    }


def test_a_record_for_each_run_and_a_plan_that_names_them(base, store):
    assert run_sweep(sweep_of(base), store, SILENT) == {}
    records = store.runs()
    named = {name for names in ids(store.plan("small")).values() for name in names}
    assert named == set(records)
    assert len(records) == 4
    for record in records.values():
        assert record.run.checkpoint.sources == ("day", "dusk")
        assert record.environment.torch == torch.__version__


def test_what_is_done_is_not_run_again(base, store, monkeypatch):
    run_sweep(sweep_of(base), store, SILENT)
    before = store.runs()
    monkeypatch.setattr(Runner, "run", lambda *_: pytest.fail("it was run again"))
    run_sweep(sweep_of(base), store, SILENT)
    assert store.runs() == before


def test_the_same_number_written_otherwise_is_the_same_run(base):
    text = TEXT.replace("lr = 0.05", "lr = {lr}")
    first, second = (sweep_of(base, text.replace("{lr}", lr)) for lr in ("1", "1.0"))
    assert first.runnable().keys() == second.runnable().keys()


def test_a_method_with_another_default_is_run_again_and_only_it(base, store, monkeypatch):
    run_sweep(sweep_of(base), store, SILENT)
    was = runners.defaults
    ran = []
    progress = RunProgress(begun=lambda spec, *_: ran.append(spec.method))
    # A new option does not make another method: those records stay.
    monkeypatch.setattr(sweeps, "defaults", lambda spec: was(spec) | {"brand_new": 1})
    run_sweep(sweep_of(base), store, progress)
    assert ran == []
    changed = {"tent": {"momentum": 0.5}}
    for module in (sweeps, runners):
        monkeypatch.setattr(module, "defaults", lambda spec: was(spec) | changed.get(spec.method, {}))
    assert method_info("tent").defaults["momentum"] != 0.5
    run_sweep(sweep_of(base), store, progress)
    assert ran == ["tent", "tent"]
    run_sweep(sweep_of(base), store, progress)
    assert ran == ["tent", "tent"]


def test_interrupted_anywhere_it_resumes_and_ends_the_same(base, store, monkeypatch):
    with Store(base / "whole") as whole:
        run_sweep(sweep_of(base), whole, SILENT)
        expected = {name: record.scores for name, record in whole.runs().items()}
    run = Runner.run
    ran = []

    def stop_after_one(self, spec, progress):
        if len(ran) % 2 == 1:
            ran.append(None)
            raise KeyboardInterrupt
        ran.append(spec)
        return run(self, spec, progress)

    monkeypatch.setattr(Runner, "run", stop_after_one)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run_sweep(sweep_of(base), store, SILENT)
    run_sweep(sweep_of(base), store, SILENT)
    assert sum(spec is not None for spec in ran) == 4
    assert {name: record.scores for name, record in store.runs().items()} == expected


def failures(store):
    return sorted(record.failed for record in store.runs().values() if record.failed)


def test_a_run_that_fails_is_recorded_and_the_rest_continues(base, store, monkeypatch):
    run = Runner.run

    def fail_for_tent(self, spec, progress):
        if spec.method == "tent" and spec.domains == ("night",):
            raise RuntimeError("out of memory\nand more")
        return run(self, spec, progress)

    with monkeypatch.context() as patched:
        patched.setattr(Runner, "run", fail_for_tent)
        failed = run_sweep(sweep_of(base), store, SILENT)
    assert list(failed.values()) == ["RuntimeError: out of memory"] == failures(store)
    assert run_sweep(sweep_of(base), store, SILENT) == {}
    assert failures(store) == []


@pytest.mark.parametrize("error", [KeyError("odd"), "nan"], ids=["any error", "a number that cannot be written"])
def test_whatever_a_run_does_the_rest_continues(base, store, monkeypatch, error):
    evaluate = Runner._evaluate

    def odd(self, spec, progress):
        if spec.method == "source" and isinstance(error, KeyError):
            raise error
        nan = {"memory": float("nan")} if spec.method == "source" else {}
        return evaluate(self, spec, progress) | nan

    monkeypatch.setattr(Runner, "_evaluate", odd)
    assert len(run_sweep(sweep_of(base), store, SILENT)) == 2
    assert len(failures(store)) == 2
    assert len(store.runs()) == 4


def test_a_checkpoint_that_is_corrupt_fails_its_runs_and_no_others(base, store):
    whole = (base / "mine.safetensors").read_bytes()
    (base / "broken.safetensors").write_bytes(whole[:-5])
    text = TEXT.replace(
        "[networks.absent]", '[networks.broken]\ncheckpoint = "{base}/broken.safetensors"\n[networks.absent]'
    )
    text = text.replace('method = "source"', 'method = "source"\nnetwork = "broken"')
    failed = run_sweep(sweep_of(base, text), store, SILENT)
    assert len(failed) == 2
    assert all("safetensors" in why for why in failed.values())
    assert len(failures(store)) == 2
    assert len(store.runs()) == 4
    (base / "broken.safetensors").write_bytes(whole)  # it is another file, so its runs are others
    assert run_sweep(sweep_of(base, text), store, SILENT) == {}


def test_a_data_set_that_raises_anything_leaves_the_rest_alone(base, monkeypatch):
    monkeypatch.setattr(Runner, "fingerprint", lambda *_: 1 / 0)
    assert {cell.missing for cell in sweep_of(base).cells} == {"ZeroDivisionError: division by zero"}


def test_a_run_that_another_process_just_tried_is_left_to_the_next_time(base, store, monkeypatch):
    sweep = sweep_of(base)
    _, second, *_ = sweep.runnable()
    run = Runner.run
    ran = []

    def meanwhile(self, spec, progress):
        ran.append(spec)
        if len(ran) == 1:  # the other process fails at the next run
            with Store(base / "results") as other:
                other.write(self.failed(sweep.runnable()[second], "no memory"))
        return run(self, spec, progress)

    monkeypatch.setattr(Runner, "run", meanwhile)
    assert run_sweep(sweep, store, SILENT) == {second: "no memory"}
    assert len(ran) == 3
    assert run_sweep(sweep_of(base), store, SILENT) == {}
    assert len(ran) == 4


def test_runs_that_cannot_be_repeated_keep_their_records_in_the_plan(base, store):
    run_sweep(sweep_of(base), store, SILENT)
    before = ids(store.plan("small"))
    (base / "mine.safetensors").rename(base / "gone.safetensors")
    sweep = sweep_of(base)
    assert not sweep.runnable()
    sweep.write_plan(store)
    assert ids(store.plan("small")) == before
    sweep_of(base, TEXT.replace("lr = 0.05", "lr = 0.06")).write_plan(store)
    after = ids(store.plan("small"))
    assert after["untouched", "night"] == before["untouched", "night"]
    assert after["Tent", "night"] == [""], "of another rate there is no record"


def test_unknown_domains_are_reported_before_anything_runs(base):
    text = TEXT.replace('"night", "dusk"', '"nite", "dusk"') + 'sources = ["dya"]\n'
    with pytest.raises(BadFile) as raised:
        sweep_of(base, text)
    for part in ("'nite'", "night", "'dya'", "day"):
        assert part in str(raised.value)


def test_other_weights_or_images_are_other_runs(base):
    first = set(sweep_of(base).runnable())
    make_checkpoint(base / "mine.safetensors", sources=("day",))
    second = set(sweep_of(base).runnable())
    (base / "pictures" / "night" / "cat" / "0.png").unlink()
    third = set(sweep_of(base).runnable())
    assert not first & second
    assert not second & third


def _run(base, ran):
    run = Runner.run

    def counted(self, spec, progress=lambda *_: None):
        ran.put(spec.command())
        return run(self, spec, progress)

    Runner.run = counted
    torch.set_num_threads(1)
    sweeps._POLL = 0.05
    with Store(base / "results") as store:
        run_sweep(sweep_of(base), store, SILENT)


def test_two_processes_never_do_a_run_twice(base):
    sweep_of(base)
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
    with Store(base / "results") as store:
        assert len(store.runs()) == 4


def test_a_run_that_another_process_does_is_waited_for(base, store, monkeypatch):
    sweep = sweep_of(base)
    name, spec = next(iter(sweep.runnable().items()))
    record = sweep.runner.run(spec)
    other = store.claim(name)
    assert other.__enter__()

    def other_ends(_):
        store.write(record)
        other.__exit__(None, None, None)

    monkeypatch.setattr(sweeps.time, "sleep", other_ends)
    monkeypatch.setattr(Runner, "run", lambda *_: pytest.fail("it was run twice"))
    assert run_once(spec, sweep.runner, store, lambda *_: None) == record


def test_a_sweep_lists_the_runs_of_all_domains_per_seed(base):
    text = TEXT + 'rows = ["Tent"]\nsweep = {{ option = "lr", values = [0.01, 0.1] }}\n'
    (table,) = sweep_of(base, text.replace("lr = 0.05\n", "")).plan().tables
    assert table.columns == ("0.01", "0.1")
    assert not table.mean
    assert [[len(seed) for seed in seeds] for seeds in table.rows[0].cells.values()] == [[2], [2]]


def test_a_full_disk_ends_the_run_with_a_message(base, store):
    sweep = sweep_of(base)
    sweep.write_plan(store)
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(BadFile, match="full"):
        run_sweep(sweep, store, SILENT)
    assert store.runs() == {}

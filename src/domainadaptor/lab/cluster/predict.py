"""Predict a folder of images with many workers: the table that one process writes."""

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import domainadaptor
from domainadaptor.errors import AdaptationError
from domainadaptor.lab.cluster.partial_table import PartialTable, partial_table
from domainadaptor.lab.cluster.start import Workers
from domainadaptor.lab.networks.weights import digest_of_weights
from domainadaptor.lab.prediction import (
    Batch,
    BatchPredictor,
    Counted,
    FileList,
    FilePrediction,
    FolderPrediction,
    PredictedBatch,
    PredictionJob,
    summary,
)

Row = dict[str, Any]
_CHECKED = 1024  # files whose headers one task checks
_SEGMENT = 16  # batches of a stream per task; what they taught is saved with them
_TRIES = 5  # passes in a row that may fail without finishing a batch; Ray itself repeats what a lost worker had
_START_DEATHS = 20  # workers in a row that may be lost while they start; Ray gives up at the first one by itself


@contextmanager
def predict_on_cluster(
    job: PredictionJob, output: Path, settings: Mapping[str, Any], workers: Workers, progress: Counted
) -> Iterator[FolderPrediction]:
    """Yield what one process would predict; finished batches are kept beside `output` until the context ends.

    Args:
        job: The files, and what predicts them.
        output: The table.
        settings: What the rows depend on besides the files and the weights.
        workers: How many there are, and what each of them has.
        progress: Is told how many files are done, of how many.
    """
    with partial_table(output, _digest(job, settings)) as table, workers.session() as fitting:
        run = _Run(job, table, fitting, progress)
        streams = run.streams()
        if job.is_online:
            run.predict_streams(streams)
        else:
            run.predict_batches([batch for stream in streams for batch in stream])
        yield summary(table, table.batches(), job.predictor.adaptor)


def _digest(job: PredictionJob, settings: Mapping[str, Any]) -> str:
    """Return a digest of all that the rows depend on."""
    files = hashlib.sha256()
    for at, path in enumerate(job.files.paths):
        known = path.lstat()
        files.update(f"{job.files.name(at)} {known.st_size} {known.st_mtime_ns}\n".encode())
    parts = {
        "version": [domainadaptor.__version__, torch.__version__],
        "weights": digest_of_weights(job.predictor.adaptor.source),
        "files": files.hexdigest(),
        "settings": {name: str(value) for name, value in settings.items()},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class _Run:
    """A job while Ray runs."""

    job: PredictionJob
    table: PartialTable
    workers: Workers
    progress: Counted

    def streams(self) -> list[list[Batch]]:
        """Return the batches of each stream, after the headers of all files were checked."""
        files, count = self.job.files, len(self.job.files.paths)
        skipped = self.table.checked()
        if skipped is None:
            rows: dict[int, FilePrediction] = {}
            if count <= _CHECKED:
                rows = files.check(range(count))
            else:
                chunks = [range(at, min(at + _CHECKED, count)) for at in range(0, count, _CHECKED)]
                for _, found in self._map([self._row(0, chunk) for chunk in chunks], _Checker(files.folder)):
                    rows |= found
            self.table.add_checked(rows)
            skipped = set(rows)
        return self.job.streams(skipped)

    def _row(self, number: int, batch: Iterable[int]) -> Row:
        """Return a batch as a row of Ray Data: its number, and the positions and names of its files."""
        files = self.job.files
        names = [os.fsencode(files.paths[at].relative_to(files.folder)) for at in batch]
        return {"number": number, "positions": list(batch), "names": names}

    def predict_batches(self, batches: Sequence[Batch]) -> None:
        """Predict batches in any order, and add each to the table when it is finished."""
        import ray

        own = ray.put(self.job.predictor)
        failures, before = 0, -1  # passes in a row that finished nothing
        while True:
            finished = self.table.finished()
            failures, before = 0 if len(finished) > before else failures, len(finished)
            left = [self._row(at, batch) for at, batch in enumerate(batches) if at not in finished]
            try:
                for number, found in self._map(left, _Worker, own, self.job.files.folder, self.workers):
                    self.table.add({number: found})
                    self._show()
                return
            except ray.exceptions.RayTaskError:
                raise
            except ray.exceptions.RayError as error:
                failures += 1
                if failures == _TRIES:
                    raise _lost(error) from error

    def _map(self, rows: list[Row], worker: Any, *given: Any) -> Iterator[tuple[int, Any]]:
        """Yield the numbers of rows and what workers make of them, as they finish; raise the errors among that."""
        import ray

        if not rows:
            return
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        context.max_consecutive_actor_init_deaths = _START_DEATHS
        data = ray.data.from_items(rows, override_num_blocks=-(-len(rows) // self.workers.block))
        if isinstance(worker, type):
            pool = ray.data.ActorPoolStrategy(size=self.workers.count)
            more: dict[str, Any] = {"compute": pool, "fn_constructor_args": given, **self.workers.reserved()}
        else:
            more = {"num_cpus": 1}
        for found in data.map(worker, **more).iter_rows():
            yield int(found["number"]), _unpacked(found["found"])

    def predict_streams(self, streams: Sequence[Sequence[Batch]]) -> None:
        """Predict streams side by side, each in order; what a segment of a stream taught is added with its rows."""
        import ray

        task = ray.remote(max_retries=-1, **self.workers.reserved())(_predict_segment)
        own, finished = ray.put(self.job.predictor), self.table.finished()
        waiting: deque[tuple[int, list[Row], bytes | None]] = deque()
        number = 0
        for at, stream in enumerate(streams):
            rows = [self._row(n, batch) for n, batch in enumerate(stream, number) if n not in finished]
            number += len(stream)
            waiting.append((at, rows, self.table.state(at)))
        running: dict[Any, tuple[int, list[Row]]] = {}
        while waiting or running:
            while waiting and len(running) < (self.workers.count or 1):
                at, rows, state = waiting.popleft()
                if rows:
                    ref = task.remote(own, self.job.files.folder, self.workers, state, rows[:_SEGMENT])
                    running[ref] = at, rows[_SEGMENT:]
            if not running:
                return
            (done,), _ = ray.wait(list(running))
            at, rows = running.pop(done)
            try:
                found, state = _unpacked(ray.get(done))
            except ray.exceptions.RayTaskError:
                raise
            except ray.exceptions.RayError as error:
                raise _lost(error) from error
            self.table.add(found, at, state)
            self._show()
            waiting.appendleft((at, rows, state))

    def _show(self) -> None:
        self.progress(len(self.table), len(self.job.files.paths))


class _Worker:
    """An actor that predicts the batches of rows."""

    def __init__(self, predictor: Any, folder: Path, workers: Workers) -> None:
        import ray

        self._predictor, self._folder = _prepared(ray.get(predictor), workers), folder

    def __call__(self, row: Row) -> Row:
        """Return the number of the batch and its result."""
        return {"number": row["number"], "found": _packed(lambda: _predict(self._predictor, self._folder, row))}


@dataclass(frozen=True)
class _Checker:
    """Checks the headers of the files of rows."""

    folder: Path

    def __call__(self, row: Row) -> Row:
        """Return the rows of the files that are no images."""
        return {"number": row["number"], "found": _packed(lambda: _globally(self._check(row), row))}

    def _check(self, row: Row) -> dict[int, FilePrediction]:
        files = _files(self.folder, row)
        return files.check(range(len(files.paths)))


def _predict_segment(
    predictor: BatchPredictor, folder: Path, workers: Workers, state: bytes | None, rows: Sequence[Row]
) -> bytes:
    """Predict some batches of a stream in order; return the results and what the stream has learned."""
    from ray import cloudpickle

    def predict() -> tuple[dict[int, PredictedBatch], bytes]:
        own = predictor if state is None else replace(predictor, adaptor=cloudpickle.loads(state))
        own = _prepared(own, workers)
        found = {int(row["number"]): _predict(own, folder, row) for row in rows}
        return found, cloudpickle.dumps(own.adaptor)

    return _packed(predict)


def _prepared(predictor: BatchPredictor, workers: Workers) -> BatchPredictor:
    """Return the predictor on the device of this worker, which from now on uses its own number of threads."""
    torch.set_num_threads(workers.threads)
    device = torch.device("cuda") if workers.gpus else predictor.device
    return replace(predictor, adaptor=predictor.adaptor.to(device), device=device)


def _predict(predictor: BatchPredictor, folder: Path, row: Row) -> PredictedBatch:
    files = _files(folder, row)
    found = predictor.predict(range(len(files.paths)), files, lambda at: None)
    return replace(found, rows=_globally(found.rows, row))


def _files(folder: Path, row: Row) -> FileList:
    return FileList(folder, [folder / os.fsdecode(name) for name in row["names"]])


def _globally(rows: Mapping[int, FilePrediction], row: Row) -> dict[int, FilePrediction]:
    """Return rows by their positions among all files, given those in the batch."""
    return {int(row["positions"][at]): found for at, found in rows.items()}


def _packed(make: Callable[[], Any]) -> bytes:
    """Return a result, or one of our errors, in bytes."""
    from ray import cloudpickle

    try:
        return cloudpickle.dumps(make())  # type: ignore[no-any-return]
    except AdaptationError as error:
        return cloudpickle.dumps(error)  # type: ignore[no-any-return]


def _unpacked(content: bytes) -> Any:
    from ray import cloudpickle

    found = cloudpickle.loads(content)
    if isinstance(found, AdaptationError):
        raise found
    return found


def _lost(error: Exception) -> AdaptationError:
    return AdaptationError(f"The cluster is lost ({str(error).splitlines()[0]}). Repeat the command to resume")

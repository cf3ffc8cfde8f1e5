"""Predict a folder of images, adapted batch by batch, into a table with one row per file."""

import csv
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.comparison import Comparison
from domainadaptor.errors import BadFile, BadOption
from domainadaptor.extras import require_extra
from domainadaptor.lab.data.images import SUFFIXES, check_image, list_files, read_image
from domainadaptor.lab.files import csv_text, replacing

PARQUET = ".parquet"
_ROW_GROUP = 65_536  # rows of a Parquet table that are written at a time
Batch = list[int]  # positions in the list of files
Counted = Callable[[int, int], None]  # done, total


@dataclass(frozen=True)
class FilePrediction:
    """One file: its predictions without and with adaptation, or why it was skipped. The fields are the columns."""

    file: str
    source_prediction: str = ""
    source_confidence: float | None = None
    adapted_prediction: str = ""
    adapted_confidence: float | None = None
    skipped: str = ""

    @property
    def is_broken_image(self) -> bool:
        """Whether it was skipped although its name is that of an image."""
        return bool(self.skipped) and Path(self.file).suffix.lower() in SUFFIXES


@dataclass(frozen=True)
class FolderPrediction:
    """One row per file, in file order, the notes of the adaptor, and why adaptation may have done harm."""

    rows: Collection[FilePrediction]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @cached_property
    def skipped(self) -> list[FilePrediction]:
        """The rows without predictions."""
        return [row for row in self.rows if row.skipped]

    @cached_property
    def predicted(self) -> int:
        """How many rows have predictions."""
        return len(self.rows) - len(self.skipped)

    @cached_property
    def changed(self) -> int:
        """How many predictions adaptation changed."""
        return sum(row.source_prediction != row.adapted_prediction for row in self.rows if not row.skipped)


@dataclass(frozen=True)
class FileList:
    """The files of a folder, in file order; a batch is a list of positions in it."""

    folder: Path
    paths: Sequence[Path]

    @staticmethod
    def of(place: Path, exclude: Iterable[Path] = ()) -> "FileList":
        """Return an image, or all files in a folder and its subfolders but some; BadFile if there are none."""
        if place.is_file():
            return FileList(place.parent, [place])
        excluded = set(map(os.path.realpath, exclude))  # which takes circular links
        paths = [path for path in list_files(place) if os.path.realpath(path) not in excluded]
        if not paths:
            raise BadFile(f"Expected images in {str(place)!r}, found no files")
        return FileList(place, paths)

    def name(self, at: int) -> str:
        """Return the name of a file in the table."""
        return self.paths[at].relative_to(self.folder).as_posix().encode("utf-8", "backslashreplace").decode()

    def check(self, chosen: Iterable[int]) -> dict[int, FilePrediction]:
        """Return the rows of files that are no images, as far as their headers show."""
        rows = {}
        for at in chosen:
            try:
                check_image(self.paths[at], self.folder)
            except BadFile as error:
                rows[at] = FilePrediction(self.name(at), skipped=str(error))
        return rows

    def streams(self, positions: Sequence[int], by: Path | None) -> list[list[int]]:
        """Return the positions of each stream: one for all files, or one for each folder directly in `by`."""
        if by is None:
            return [list(positions)]
        inner = os.path.relpath(by, self.folder)
        if inner.startswith("..") or not by.is_dir():
            raise BadOption(f"--stream-by {str(by)!r}: expected {str(self.folder)!r} or a folder in it")
        within = Path(inner).parts
        found: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for at in positions:
            above = self.paths[at].relative_to(self.folder).parts[:-1]
            found[above[: len(within) + 1] if above[: len(within)] == within else ()].append(at)
        return list(found.values())


@dataclass(frozen=True)
class PredictedBatch:
    """The rows of a batch by position, how they compare with the source model's, and the adaptor's note."""

    rows: Mapping[int, FilePrediction]
    compared: Mapping[str, Any]
    note: str | None


@dataclass(frozen=True)
class BatchPredictor:
    """Predicts batches of files, one after the other."""

    adaptor: Adaptor
    transform: Callable[[Image.Image], Tensor]
    device: torch.device
    classes: Sequence[str]

    def predict(self, batch: Sequence[int], files: FileList, read: Callable[[int], None]) -> PredictedBatch:
        """Predict the files at some positions; corrupt ones among them are skipped."""
        rows: dict[int, FilePrediction] = {}
        pixels: dict[int, Tensor] = {}
        compared = Comparison()
        note = None
        for at in batch:
            try:
                pixels[at] = self.transform(read_image(files.paths[at], files.folder))
            except BadFile as error:
                rows[at] = FilePrediction(files.name(at), skipped=str(error))
            read(at)
        if pixels:
            images = torch.stack(list(pixels.values())).to(self.device)
            self.adaptor.watch.compares = False  # all batches are compared here
            source, result = self.adaptor.source_logits(images), self.adaptor.adapt(images)
            compared.add(source, result)
            note = None if result.warnings else result.note
            predictions = best_classes(source, self.classes), best_classes(result.logits, self.classes)
            for at, of_source, adapted in zip(pixels, *predictions, strict=True):
                rows[at] = FilePrediction(files.name(at), *of_source, *adapted)
        return PredictedBatch(rows, compared.state_dict(), note)


@dataclass(frozen=True)
class PredictionJob:
    """Files to predict in shuffled batches.

    A folder is often sorted by class, and a batch of one class misleads adaptation; hence the shuffle.

    Args:
        predictor: Predicts a batch.
        files: The files.
        batch_size: Images per batch.
        seed: Of the order of the images.
        stream_by: Each folder directly in this one is a stream.
    """

    predictor: BatchPredictor
    files: FileList
    batch_size: int
    seed: int
    stream_by: Path | None = None

    @property
    def is_online(self) -> bool:
        """Whether batches depend on the earlier ones of their stream."""
        return self.predictor.adaptor.reset_every != 1

    def streams(self, skipped: Collection[int]) -> list[list[Batch]]:
        """Return the batches of each stream, given the positions of files that are no images."""
        good = [at for at in range(len(self.files.paths)) if at not in skipped]
        streams = self.files.streams(good, self.stream_by)
        return [shuffled_batches(stream, self.batch_size, self.seed) for stream in streams]


def predict_folder(job: PredictionJob, progress: Counted) -> FolderPrediction:
    """Predict all files, one batch after the other."""
    count, found = len(job.files.paths), []
    rows = job.files.check(range(count))
    done = len(rows)

    def read(_: int) -> None:
        nonlocal done
        progress(done := done + 1, count)

    for stream in job.streams(rows):
        job.predictor.adaptor.reset()
        found += [job.predictor.predict(batch, job.files, read) for batch in stream]
    for batch in found:
        rows |= batch.rows
    return summary([rows[at] for at in range(count)], found, job.predictor.adaptor)


def summary(rows: Collection[FilePrediction], batches: Iterable[PredictedBatch], adaptor: Adaptor) -> FolderPrediction:
    """Return the rows with what the batches, in order, say about all of them."""
    compared = Comparison()
    notes: dict[str, None] = {}
    for batch in batches:
        compared.merge(batch.compared)
        if batch.note:
            notes[batch.note] = None
    return FolderPrediction(rows, tuple(notes), compared.texts(adaptor))


def check_output(path: Path) -> None:
    """Check that a table can be written before anything is computed."""
    if not path.absolute().parent.is_dir():
        raise BadFile(f"No folder for --output {str(path)!r}; create it first")
    if path.suffix == PARQUET:
        require_extra("ray", f"--output {path.name}")


def write_table(rows: Iterable[FilePrediction], path: Path) -> None:
    """Write a CSV or Parquet table atomically; names in a CSV table cannot be formulas of a spreadsheet."""
    with replacing(path) as temporary:
        if path.suffix == PARQUET:
            _write_parquet(rows, temporary)
            return
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(column.name for column in fields(FilePrediction))
            for row in rows:
                writer.writerow(csv_text(value) if isinstance(value, str) else value for value in astuple(row))


def _write_parquet(rows: Iterable[FilePrediction], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = [column.name for column in fields(FilePrediction)]
    schema = pyarrow.schema([(name, "float64" if name.endswith("confidence") else "string") for name in columns])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        left = iter(rows)
        while group := list(map(asdict, islice(left, _ROW_GROUP))):
            writer.write_table(pyarrow.Table.from_pylist(group, schema))


def shuffled_batches(positions: Sequence[int], batch_size: int, seed: int) -> list[Batch]:
    """Shuffle positions into batches of nearly equal size: a last batch of one image would adapt badly."""
    order = torch.randperm(len(positions), generator=torch.Generator().manual_seed(seed))
    chunks = order.tensor_split(max(1, -(-len(positions) // batch_size)))
    return [[positions[at] for at in chunk.tolist()] for chunk in chunks]


def best_classes(logits: Tensor, classes: Sequence[str]) -> list[tuple[str, float]]:
    """Return the class of each image and the confidence in it."""
    confidence, best = logits.float().softmax(1).max(1)
    return [(classes[k], round(c, 6)) for c, k in zip(confidence.tolist(), best.tolist(), strict=True)]

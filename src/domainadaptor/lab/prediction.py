"""Predict a folder of images, adapted batch by batch, into a table with one row per file."""

import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.adaptation.comparison import Comparison
from domainadaptor.errors import BadFile
from domainadaptor.lab.data.images import SUFFIXES, check_image, list_files, read_image
from domainadaptor.lab.files import csv_text, replacing


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

    rows: tuple[FilePrediction, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def predicted(self) -> list[FilePrediction]:
        """The rows that have predictions."""
        return [row for row in self.rows if not row.skipped]

    @property
    def changed(self) -> int:
        """How many predictions adaptation changed."""
        return sum(row.source_prediction != row.adapted_prediction for row in self.predicted)


def predict_folder(
    adaptor: Adaptor,
    folder: Path,
    *,
    classes: Sequence[str],
    transform: Callable[[Image.Image], Tensor],
    device: torch.device,
    batch_size: int,
    seed: int,
    progress: Callable[[int, int], None],
    exclude: Path | None = None,
) -> FolderPrediction:
    """Predict an image, or every image in a folder and its subfolders, in shuffled batches.

    A folder is often sorted by class, and a batch of one class misleads adaptation; hence the shuffle.
    """
    if folder.is_file():
        files, folder = [folder], folder.parent
    else:
        excluded = None if exclude is None else os.path.realpath(exclude)  # which takes circular links
        files = [path for path in list_files(folder) if os.path.realpath(path) != excluded]
    if not files:
        raise BadFile(f"Expected images in {str(folder)!r}, found no files")
    names = [path.relative_to(folder).as_posix().encode("utf-8", "backslashreplace").decode() for path in files]
    rows: dict[int, FilePrediction] = {}
    notes: dict[str, None] = {}
    compared = Comparison()
    adaptor.watch.compares = False  # all batches are compared here
    for at, path in enumerate(files):
        try:
            check_image(path, folder)
        except BadFile as error:
            rows[at] = FilePrediction(names[at], skipped=str(error))
    for chosen in shuffled_batches([at for at in range(len(files)) if at not in rows], batch_size, seed):
        pixels: dict[int, Tensor] = {}
        for at in chosen:
            try:
                pixels[at] = transform(read_image(files[at], folder))
            except BadFile as error:
                rows[at] = FilePrediction(names[at], skipped=str(error))
            progress(len(rows) + len(pixels), len(files))
        if not pixels:
            continue
        images = torch.stack(list(pixels.values())).to(device)
        source, result = adaptor.source_logits(images), adaptor.adapt(images)
        compared.add(source, result)
        if result.note and not result.warnings:
            notes[result.note] = None
        predictions = best_classes(source, classes), best_classes(result.logits, classes)
        for at, of_source, adapted in zip(pixels, *predictions, strict=True):
            rows[at] = FilePrediction(names[at], *of_source, *adapted)
    return FolderPrediction(tuple(rows[at] for at in range(len(files))), tuple(notes), compared.texts(adaptor))


def write_csv(prediction: FolderPrediction, path: Path) -> None:
    """Write the table atomically; names of files and classes cannot be formulas of a spreadsheet."""
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [column.name for column in fields(FilePrediction)])
        writer.writeheader()
        for row in map(asdict, prediction.rows):
            writer.writerow({name: csv_text(value) if isinstance(value, str) else value for name, value in row.items()})


def shuffled_batches(positions: Sequence[int], batch_size: int, seed: int) -> list[list[int]]:
    """Shuffle positions into batches of nearly equal size: a last batch of one image would adapt badly."""
    order = torch.randperm(len(positions), generator=torch.Generator().manual_seed(seed))
    chunks = order.tensor_split(max(1, -(-len(positions) // batch_size)))
    return [[positions[at] for at in chunk.tolist()] for chunk in chunks]


def best_classes(logits: Tensor, classes: Sequence[str]) -> list[tuple[str, float]]:
    """Return the class of each image and the confidence in it."""
    confidence, best = logits.float().softmax(1).max(1)
    return [(classes[k], round(c, 6)) for c, k in zip(confidence.tolist(), best.tolist(), strict=True)]

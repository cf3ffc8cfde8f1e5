"""Predictions for a folder of images, adapted batch by batch, as rows of a table."""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from domainadaptor.adaptation.adaptor import Adaptor
from domainadaptor.errors import BadFile
from domainadaptor.lab.data.images import SUFFIXES, check_image, list_files, read_image
from domainadaptor.lab.files import replacing

_COLUMNS = ("file", "source_prediction", "source_confidence", "adapted_prediction", "adapted_confidence", "skipped")


@dataclass(frozen=True)
class Row:
    """One file: what the source network and the adapted one say, or why it was skipped."""

    file: str
    source_prediction: str = ""
    source_confidence: float | None = None
    adapted_prediction: str = ""
    adapted_confidence: float | None = None
    skipped: str = ""

    @property
    def damaged(self) -> bool:
        """Skipped although it is named like an image."""
        return bool(self.skipped) and Path(self.file).suffix.lower() in SUFFIXES


@dataclass(frozen=True)
class FolderPrediction:
    """A row for every file of the folder, in file order, and what the adaptor had to say."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def predicted(self) -> list[Row]:
        """The rows that were not skipped."""
        return [row for row in self.rows if not row.skipped]

    @property
    def skipped(self) -> list[Row]:
        """The rows that were."""
        return [row for row in self.rows if row.skipped]


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
    leave_out: Path | None = None,
) -> FolderPrediction:
    """Predicts every image below a folder, in batches drawn by a seeded shuffle.

    A folder is often sorted by class, and a batch of one class misleads adaptation; hence the shuffle.

    Args:
        adaptor: What predicts.
        folder: Where the images are, at any depth.
        classes: The names of the classes, in the order of the logits.
        transform: From an RGB image to the network's input.
        device: Where the adaptor is.
        batch_size: The most images that it sees at once; batches are of nearly the same size.
        seed: Of the shuffle.
        progress: Called after each file with how many are done and how many there are.
        leave_out: A file that is not looked at.

    Raises:
        BadFile: The folder is missing, or holds no file.
    """
    left_out = None if leave_out is None else leave_out.resolve()
    files = [path for path in list_files(folder) if left_out is None or path.resolve() != left_out]
    if not files:
        raise BadFile(f"no files below {str(folder)!r}: expected images")
    names = [_printable(path.relative_to(folder)) for path in files]
    rows: dict[int, Row] = {}
    notes: list[str] = []
    for at, path in enumerate(files):
        try:
            check_image(path, folder)
        except BadFile as error:
            rows[at] = Row(names[at], skipped=str(error))
    for chosen in _batches([at for at in range(len(files)) if at not in rows], batch_size, seed):
        pixels: dict[int, Tensor] = {}
        for at in chosen:
            try:
                pixels[at] = transform(read_image(files[at], folder))
            except BadFile as error:
                rows[at] = Row(names[at], skipped=str(error))
            progress(len(rows) + len(pixels), len(files))
        if not pixels:
            continue
        images = torch.stack(list(pixels.values())).to(device)
        source, result = adaptor.unadapted(images), adaptor.adapt(images)
        if result.note and result.note not in notes:
            notes.append(result.note)
        for at, before, after in zip(pixels, _best(source, classes), _best(result.logits, classes), strict=True):
            rows[at] = Row(names[at], *before, *after)
    return FolderPrediction(tuple(rows[at] for at in range(len(files))), tuple(notes))


def write_csv(prediction: FolderPrediction, path: Path) -> None:
    """Writes the table whole or not at all.

    Raises:
        BadFile: It cannot be written there.
    """
    with replacing(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        writer.writerows(_cells(row) for row in prediction.rows)


def read_classes(path: Path) -> list[str]:
    """Class names, one a line, or a JSON list.

    Raises:
        BadFile: The file is missing, empty, or has a name twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        named = json.loads(text) if path.suffix.lower() == ".json" else text.splitlines()
    except (OSError, ValueError) as error:
        raise BadFile(f"cannot read class names from {str(path)!r}: {error}") from error
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise BadFile(f"{str(path)!r}: expected one class name a line, or a JSON list of names")
    names = [name.strip() for name in named if name.strip()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if len(names) < 2 or twice:
        raise BadFile(
            f"{str(path)!r}: expected two or more different class names, got {len(names)}, twice: {twice or 'none'}"
        )
    return names


def _batches(positions: Sequence[int], batch_size: int, seed: int) -> list[list[int]]:
    """A seeded shuffle in batches of nearly the same size: a rest of one image adapts badly."""
    order = torch.randperm(len(positions), generator=torch.Generator().manual_seed(seed))
    chunks = order.tensor_split(max(1, -(-len(positions) // batch_size)))
    return [[positions[at] for at in chunk.tolist()] for chunk in chunks]


def _printable(path: Path) -> str:
    """The name, with escapes for bytes that are not text in any file system's sense."""
    return path.as_posix().encode("utf-8", "backslashreplace").decode("utf-8")


def _best(logits: Tensor, classes: Sequence[str]) -> list[tuple[str, float]]:
    confidence, best = logits.float().softmax(1).max(1)
    return [(classes[k], round(c, 6)) for c, k in zip(confidence.tolist(), best.tolist(), strict=True)]


def _cells(row: Row) -> list[object]:
    return ["" if value is None else value for value in asdict(row).values()]

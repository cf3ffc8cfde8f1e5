"""Image files as RGB pictures, or the reason why not."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from domainadaptor.errors import BadFile

SUFFIXES = frozenset([".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"])
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MOST_PIXELS = 100_000_000

T = TypeVar("T")


class _Quiet:
    """Warnings of decoders ignored while any thread decodes.

    Each thread on its own would put back what it found, which may be what another one had set.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._caught = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._caught = warnings.catch_warnings()
                self._caught.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._caught.__exit__(None, None, None)


_QUIET = _Quiet()


def list_files(folder: Path) -> list[Path]:
    """Every file below a folder, sorted by name; links to folders are listed, not followed.

    Raises:
        BadFile: There is no such folder.
    """
    if not folder.is_dir():
        raise BadFile(f"no folder at {str(folder)!r}: expected a folder of images")
    return sorted(_walk(folder), key=lambda path: path.relative_to(folder).parts)


def check_image(path: Path, within: Path) -> None:
    """Looks at a file's kind and header only.

    Raises:
        BadFile: It is not a regular file below `within`, not an image, or too large.
    """
    _guarded(_look, path, within)


def read_image(path: Path, within: Path) -> Image.Image:
    """The picture in a file as RGB: upright by its EXIF entry, on white where transparent, the first of several frames.

    Raises:
        BadFile: It is not a regular file below `within`, not an image, damaged, or too large.
    """
    return _guarded(_decode, path, within)


def _guarded(job: Callable[[Path, Path], T], path: Path, within: Path) -> T:
    try:
        return job(path, within)
    except BadFile:
        raise
    except MemoryError as error:
        raise BadFile("not enough memory to decode it") from error
    # Decoders meet damaged files with errors of every kind; whatever it was, the file is the one to blame.
    except Exception as error:
        raise BadFile(f"not a readable image ({_reason(error)})") from error


def _walk(folder: Path) -> Iterator[Path]:
    """Files at any depth; what cannot be looked into is listed itself."""
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        try:
            entries = list(current.iterdir())
        except OSError:
            yield current
            continue
        for entry in entries:
            if entry.is_dir() and not entry.is_symlink():
                waiting.append(entry)
            else:
                yield entry


def _look(path: Path, within: Path) -> None:
    with _opened(path, within):
        pass


@contextmanager
def _opened(path: Path, within: Path) -> Iterator[Image.Image]:
    if not path.resolve().is_relative_to(within.resolve()):
        raise BadFile("a link to outside of the folder")
    if path.is_dir():
        raise BadFile(
            "a link to a folder, which is not followed" if path.is_symlink() else "a folder that cannot be read"
        )
    if not path.is_file():
        raise BadFile("not a regular file")
    if path.stat().st_size == 0:
        raise BadFile("an empty file")
    # Only the header is read here, so the limit below is what protects from decompression bombs.
    with _QUIET, Image.open(path, formats=_FORMATS) as opened:
        width, height = opened.size
        if width * height > _MOST_PIXELS:
            raise BadFile(f"{width}x{height} pixels; at most {_MOST_PIXELS // 1_000_000} million are decoded")
        yield opened


def _decode(path: Path, within: Path) -> Image.Image:
    with _opened(path, within) as opened:
        opened.load()
        return _as_rgb(ImageOps.exif_transpose(opened))


def _as_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I") or picture.mode == "F":
        picture = _eight_bits(picture)
    if picture.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        paper = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(paper, picture)
    return picture.convert("RGB")


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Sixteen bits and floats scaled to eight, where a plain conversion would clip them."""
    values = np.nan_to_num(np.asarray(picture, dtype=np.float64))
    if picture.mode == "F":
        low, high = min(values.min(), 0.0), max(values.max(), 0.0)
        full = 1.0 if high <= 1 else 255.0 if high <= 255 else high
        values = (values - low) / (full - low)
    else:
        values = values / (255.0 if picture.mode == "I" and values.max() <= 255 else 65535.0)
    return Image.fromarray((values.clip(0, 1) * 255).round().astype(np.uint8))


def _reason(error: Exception) -> str:
    text = str(error).partition("\n")[0]
    return "unknown format" if isinstance(error, UnidentifiedImageError) else text or type(error).__name__

"""Image files as RGB images, or the reason why they cannot be read; folders of unlabeled images."""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from domainadaptor.errors import BadFile

SUFFIXES = frozenset([".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"])
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MAX_PIXELS = 100_000_000


def list_files(folder: Path) -> list[Path]:
    """Return every file below a folder, sorted by name; links to folders are listed, not followed."""
    if not folder.is_dir():
        raise BadFile(f"No folder {str(folder)!r}: expected a folder of images")
    return sorted(_walk(folder), key=lambda path: path.relative_to(folder).parts)


def check_image(path: Path, within: Path) -> None:
    """Check the header of a file; raise BadFile if it is no regular file below `within`, no image, or too large."""
    with _opened(path, within):
        pass


def read_image(path: Path, within: Path) -> Image.Image:
    """Read an image file as RGB: upright by its EXIF entry, on white where transparent, the first of several frames.

    Raises BadFile like `check_image`, and if the file is corrupt.
    """
    with _opened(path, within) as image:
        return _decode(image)


def read_image_bytes(data: bytes, max_pixels: int = _MAX_PIXELS) -> Image.Image:
    """Decode an image as `read_image` does."""
    with _opened(BytesIO(data), max_pixels=max_pixels) as image:
        return _decode(image)


def check_image_bytes(data: bytes, max_pixels: int = _MAX_PIXELS) -> None:
    """Check the header of an image as `check_image` does."""
    with _opened(BytesIO(data), max_pixels=max_pixels):
        pass


class FolderImages:
    """Batches of the images below a folder in a seeded order, read again on every iteration.

    Args:
        folder: The folder with images at any depth; other files are skipped.
        transform: Function from an RGB image to the network's input.
        seed: Seed of the order, and of the choice if there are more than `limit`.
        limit: How many images to use; None uses all.
        batch_size: Images per batch; the last batch may be smaller.
    """

    def __init__(
        self,
        folder: Path,
        transform: Callable[[Image.Image], Tensor],
        *,
        seed: int = 0,
        limit: int | None = None,
        batch_size: int = 64,
    ) -> None:
        self._folder, self._transform, self._batch_size = folder, transform, batch_size
        files = list_files(folder)
        order = torch.randperm(len(files), generator=torch.Generator().manual_seed(seed)).tolist()
        images = (files[at] for at in order if _is_image(files[at], folder))
        self._files = list(itertools.islice(images, limit))
        if not self._files:
            count = f"{len(files)} file{'' if len(files) == 1 else 's'}"
            raise BadFile(f"No readable image among the {count} below {str(folder)!r}")

    def __len__(self) -> int:
        """Return the number of chosen images; corrupt ones among them are skipped when they are read."""
        return len(self._files)

    def __iter__(self) -> Iterator[Tensor]:
        """Yield batches, (N, 3, H, W)."""
        batch: list[Tensor] = []
        for path in self._files:
            try:
                batch.append(self._transform(read_image(path, self._folder)))
            except BadFile:
                continue
            if len(batch) == self._batch_size:
                yield torch.stack(batch)
                batch = []
        if batch:
            yield torch.stack(batch)


def _is_image(path: Path, within: Path) -> bool:
    try:
        check_image(path, within)
    except BadFile:
        return False
    return True


def _walk(folder: Path) -> Iterator[Path]:
    """Yield files at any depth; folders that cannot be listed are yielded themselves."""
    unlisted: list[OSError] = []
    for place, folders, files in os.walk(folder, onerror=unlisted.append):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        yield from (Path(place, name) for name in (*files, *links))
    yield from (Path(error.filename) for error in unlisted)


@contextmanager
def _opened(file: Path | BytesIO, within: Path | None = None, max_pixels: int = _MAX_PIXELS) -> Iterator[Image.Image]:
    """Open an image; whatever goes wrong until it is closed is a BadFile."""
    try:
        if isinstance(file, Path) and within is not None:
            _check_file(file, within)
        # Only the header is read here, so the limit below protects against decompression bombs.
        with Image.open(file, formats=_FORMATS) as opened:
            width, height = opened.size
            if width * height > max_pixels:
                raise BadFile(f"{width}x{height} pixels; at most {max_pixels / 1e6:g} million are decoded")
            yield opened
    except BadFile:
        raise
    except MemoryError as error:
        raise BadFile("not enough memory to decode it") from error
    # Decoders raise errors of every kind on corrupt files; all of them mean the same here.
    except Exception as error:
        text = str(error).partition("\n")[0] or type(error).__name__
        reason = "unknown format" if isinstance(error, UnidentifiedImageError) else text
        raise BadFile(f"not a readable image ({reason})") from error


def _check_file(path: Path, within: Path) -> None:
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


def _decode(opened: Image.Image) -> Image.Image:
    opened.load()
    image = ImageOps.exif_transpose(opened)
    if image.mode.startswith("I") or image.mode == "F":
        image = _eight_bits(image)
    if image.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale sixteen bits and floats to eight bits; Pillow's conversion would clip them."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float64))
    if image.mode == "F":
        low, high = min(values.min(), 0.0), max(values.max(), 0.0)
        full = 1.0 if high <= 1 else 255.0 if high <= 255 else high
        values = (values - low) / (full - low)
    else:
        values = values / (255.0 if image.mode == "I" and values.max() <= 255 else 65535.0)
    return Image.fromarray((values.clip(0, 1) * 255).round().astype(np.uint8))

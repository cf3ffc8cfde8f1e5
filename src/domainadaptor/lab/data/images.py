"""Image files as RGB images, or the reason why they cannot be read; folders of unlabeled images."""

import base64
import itertools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError, features
from PIL.TiffImagePlugin import BITSPERSAMPLE, TiffImageFile
from torch import Tensor

from domainadaptor.errors import BadFile

_AVIF = ("AVIF",) if "avif" in features.modules and features.check("avif") else ()
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP", *_AVIF)
SUFFIXES = frozenset([*(f".{name.lower()}" for name in FORMATS), ".jpg", ".pgm", ".tif"])
MAX_PIXELS = 50_000_000
_MAX_BYTES = 450_000_000  # that decoding may take at a time
_THUMBNAIL, _EXACT = 112, 64  # pixels of a side: of a thumbnail, and up to which it loses nothing
_STRIP = 1_000_000  # pixels whose mode is changed at a time: intermediate results take up to 16 bytes each


def list_files(folder: Path) -> list[Path]:
    """Return every file below a folder, sorted by name; links to folders are listed, not followed."""
    if not folder.is_dir():
        raise BadFile(f"No folder {str(folder)!r}: expected an image or a folder of images")
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


def read_image_bytes(data: bytes, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode an image as `read_image` does, with a lower limit if one is given."""
    with _opened(BytesIO(data), max_pixels=max_pixels) as image:
        return _decode(image)


def check_image_bytes(data: bytes, max_pixels: int = MAX_PIXELS) -> None:
    """Check the header of an image as `check_image` does."""
    with _opened(BytesIO(data), max_pixels=max_pixels):
        pass


def as_url(image: Image.Image) -> str:
    """Return a small copy of an image as a data URL."""
    small, file = image.copy(), BytesIO()
    small.thumbnail((_THUMBNAIL, _THUMBNAIL))
    form = "PNG" if max(image.size) <= _EXACT else "JPEG"
    small.save(file, form, quality=85)
    return f"data:image/{form.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


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
        self.skipped: dict[str, str] = {}  # file -> reason; corrupt images are added when they are read
        files = list_files(folder)
        order = torch.randperm(len(files), generator=torch.Generator().manual_seed(seed)).tolist()
        images = (files[at] for at in order if self._is_image(files[at]))
        self._files = list(itertools.islice(images, limit))
        if not self._files:
            count = f"{len(files)} file{'' if len(files) == 1 else 's'}"
            raise BadFile(f"No readable image among the {count} below {str(folder)!r}")

    def names(self) -> list[str]:
        """Return the names of the chosen images in their order, without those that were skipped."""
        names = (path.relative_to(self._folder).as_posix() for path in self._files)
        return [name for name in names if name not in self.skipped]

    def __len__(self) -> int:
        """Return the number of chosen images; corrupt ones among them are skipped when they are read."""
        return len(self._files)

    def __iter__(self) -> Iterator[Tensor]:
        """Yield batches, (N, 3, H, W)."""
        batch: list[Tensor] = []
        for path in self._files:
            try:
                batch.append(self._transform(read_image(path, self._folder)))
            except BadFile as error:
                self._skip(path, error)
                continue
            if len(batch) == self._batch_size:
                yield torch.stack(batch)
                batch = []
        if batch:
            yield torch.stack(batch)

    def _is_image(self, path: Path) -> bool:
        try:
            check_image(path, self._folder)
        except BadFile as error:
            self._skip(path, error)
            return False
        return True

    def _skip(self, path: Path, error: BadFile) -> None:
        self.skipped[path.relative_to(self._folder).as_posix()] = str(error)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield files at any depth; folders that cannot be listed are yielded themselves."""
    unlisted: list[OSError] = []
    for place, folders, files in os.walk(folder, onerror=unlisted.append):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        yield from (Path(place, name) for name in (*files, *links))
    yield from (Path(error.filename) for error in unlisted)


@contextmanager
def _opened(file: Path | BytesIO, within: Path | None = None, max_pixels: int = MAX_PIXELS) -> Iterator[Image.Image]:
    """Open an image; whatever goes wrong until it is closed is a BadFile."""
    try:
        if isinstance(file, Path) and within is not None:
            _check_file(file, within)
        # Only the header is read here, so the limits protect against decompression bombs.
        with Image.open(file, formats=FORMATS) as opened:
            _check_size(opened, min(max_pixels, MAX_PIXELS))
            yield opened
    except BadFile:
        raise
    except MemoryError as error:
        raise BadFile("not enough memory to decode it") from error
    # Decoders raise errors of every kind on corrupt files; all of them mean the same here.
    except Exception as error:
        text = str(error).partition("\n")[0] or type(error).__name__
        known = f"unknown format; known are {', '.join(FORMATS)}"
        reason = known if isinstance(error, UnidentifiedImageError) else text
        raise BadFile(f"not a readable image ({reason})") from error


def _check_file(path: Path, within: Path) -> None:
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(within)):  # realpath takes circular links
        raise BadFile("a link to outside of the folder")
    if path.is_dir():
        raise BadFile(
            "a link to a folder, which is not followed" if path.is_symlink() else "a folder that cannot be read"
        )
    if not path.is_file():
        raise BadFile("not a regular file")
    if path.stat().st_size == 0:
        raise BadFile("an empty file")


def _check_size(image: Image.Image, max_pixels: int) -> None:
    """Raise BadFile if decoding the image would take too much memory or time."""
    pixels, channels = math.prod(image.size), len(image.getbands())
    if pixels > max_pixels:
        raise BadFile(f"{image.width}x{image.height} pixels; at most {max_pixels / 1e6:g} million are decoded")
    # Bytes per pixel that the decoder holds besides the image, which takes up to 4.
    buffer = {"WEBP": 12, "AVIF": 8}.get(image.format or "", channels)
    if image.info.get("progressive"):  # a JPEG, whose coefficients have 16 bits
        buffer = 2 * channels
    elif isinstance(image, TiffImageFile):
        buffer = max(image.tag_v2.get(BITSPERSAMPLE, (8,))) * channels // 8
    if pixels * (buffer + 4) > _MAX_BYTES:
        raise BadFile(
            f"{image.width}x{image.height} pixels of this kind take {pixels * (buffer + 4) / 1e6:.0f} MB to decode; "
            f"at most {_MAX_BYTES / 1e6:.0f} are used"
        )


def _decode(opened: Image.Image) -> Image.Image:
    opened.load()
    ImageOps.exif_transpose(opened, in_place=True)
    if opened.mode == "RGB" and "transparency" not in opened.info:
        return opened.copy()
    low, high = _range(opened) if opened.mode == "F" or opened.mode.startswith("I") else (0.0, 0.0)
    image = Image.new("RGB", opened.size)
    for top, strip in _strips(opened):
        if high > low:
            strip = _eight_bits(strip, low, high)
        if strip.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in strip.info:
            strip = strip.convert("RGBA")
            strip = Image.alpha_composite(Image.new("RGBA", strip.size, "white"), strip)
        image.paste(strip.convert("RGB"), (0, top))
    return image


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Yield parts of an image, from top to bottom, with their first row."""
    rows = max(1, _STRIP // image.width)
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _range(image: Image.Image) -> tuple[float, float]:
    """Return which values of sixteen bits or floats are black and white; Pillow's conversion would clip them."""
    values = (np.nan_to_num(np.asarray(strip, dtype=np.float64)) for _, strip in _strips(image))
    extrema = [(float(part.min()), float(part.max())) for part in values]
    low, high = min(low for low, _ in extrema), max(high for _, high in extrema)
    if image.mode != "F":
        return 0.0, 255.0 if image.mode == "I" and high <= 255 else 65535.0
    high = max(high, 0.0)
    return min(low, 0.0), 1.0 if high <= 1 else 255.0 if high <= 255 else high


def _eight_bits(strip: Image.Image, low: float, high: float) -> Image.Image:
    values = (np.nan_to_num(np.asarray(strip, dtype=np.float64)) - low) / (high - low)
    return Image.fromarray((values.clip(0, 1) * 255).round().astype(np.uint8))

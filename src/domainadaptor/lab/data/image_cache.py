"""The images of one domain at one size: decoded on demand, or once into a cache on disk."""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from platformdirs import user_cache_path
from torch import Tensor

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.files import remove_leftovers

Progress = Callable[[str, int, int], None]  # what, done, total

_NAME = 40  # characters of the domain's name in the cache's name: file names are limited to 255 bytes
_CHUNK = 256  # images per round, which bounds the memory


def cache_folder() -> Path:
    """Return the folder for decoded images and trained networks: DOMAINADAPTOR_CACHE, or the user's cache folder."""
    given = os.environ.get("DOMAINADAPTOR_CACHE")
    return Path(given) if given else user_cache_path("domainadaptor", appauthor=False)


class DomainImages:
    """A domain's images at a network's input size, addressed by their positions in `domain.examples`."""

    def __init__(self, domain: Domain, preprocessing: Preprocessing) -> None:
        self.domain = domain
        self.side = preprocessing.size
        self._preprocessing = preprocessing
        self._cached: np.ndarray | None = None
        self.skipped: dict[str, str] = {}  # name -> why; complete once the images are cached

    def take(self, positions: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Return images between 0 and 1, (N, 3, side, side), and their positions, without those that are unreadable."""
        if self._cached is not None:
            examples = self.domain.examples
            there = [at for at in positions if examples[at].name not in self.skipped]
            stacked = self._cached[np.asarray(there, dtype=np.int64)]
        else:
            read = list(self._read_all(positions))
            there = [at for at, _ in read]
            shape = (0, self.side, self.side, 3)
            stacked = np.stack([image for _, image in read]) if read else np.empty(shape, np.uint8)
        return torch.from_numpy(stacked).permute(0, 3, 1, 2).contiguous().float().div_(255), there

    def cache(self, folder: Path, progress: Progress | None = None) -> None:
        """Decode every image once into a file below the folder; later runs reuse it."""
        place = folder / self._key()
        if self._has_readable_gaps(place):
            shutil.rmtree(place, ignore_errors=True)
        if not (place / "index.json").is_file():
            try:
                self._build(place, progress or (lambda *_: None))
            except OSError as error:
                raise BadFile(
                    f"Cannot write the image cache {str(place)!r}: {error.strerror or error}; free some space, choose "
                    "another cache folder, or pass --no-cache"
                ) from error
        try:
            self.skipped = json.loads((place / "index.json").read_text(encoding="utf-8"))["skipped"]
            self._cached = np.load(place / "pixels.npy", mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise BadFile(f"The image cache {str(place)!r} is corrupt ({error}); delete this folder") from error

    def _has_readable_gaps(self, place: Path) -> bool:
        """Return whether an image that was unreadable when the cache was built can be read now."""
        try:
            known = json.loads((place / "index.json").read_text(encoding="utf-8"))["skipped"]
        except (OSError, ValueError, KeyError):
            return False
        gaps = [at for at, example in enumerate(self.domain.examples) if example.name in known]
        return any(self._read(at)[1] is not None for at in gaps)

    def _build(self, place: Path, progress: Progress) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(place.parent, ".building-*")
        self.skipped = {}
        building = Path(tempfile.mkdtemp(prefix=".building-", suffix=f".{os.getpid()}", dir=place.parent))
        try:
            total = len(self.domain.examples)
            shape = (total, self.side, self.side, 3)
            pixels = np.lib.format.open_memmap(building / "pixels.npy", mode="w+", dtype=np.uint8, shape=shape)
            _allocate(building / "pixels.npy")
            for start in range(0, total, _CHUNK):
                end = min(start + _CHUNK, total)
                for at, image in self._read_all(range(start, end)):
                    pixels[at] = image
                progress(f"decoding {self.domain.name}", end, total)
            pixels.flush()
            index = {"domain": self.domain.name, "side": self.side, "images": total, "skipped": self.skipped}
            (building / "index.json").write_text(json.dumps(index), encoding="utf-8")
            with contextlib.suppress(OSError):  # another process was faster, with the same content
                building.replace(place)
        finally:
            shutil.rmtree(building, ignore_errors=True)

    def _read_all(self, positions: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
        # Pillow releases the interpreter lock while it decodes and resizes, so threads run in parallel.
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            for at, image in pool.map(self._read, positions):
                if image is not None:
                    yield at, image

    def _read(self, at: int) -> tuple[int, np.ndarray | None]:
        name = self.domain.examples[at].name
        try:
            return at, np.asarray(self._preprocessing.fit(self.domain.read(name)))
        except BadFile as error:
            self.skipped[name] = str(error)
            return at, None

    def _key(self) -> str:
        """Return a name that depends on the images and on their preprocessing."""
        preprocessing = {k: v for k, v in asdict(self._preprocessing).items() if k not in ("mean", "std")}
        digest = hashlib.sha256(json.dumps([repr(self.domain.read), preprocessing], sort_keys=True).encode())
        for example in self.domain.examples:
            digest.update(f"{example.name}\0{self.domain.read.stamp(example.name)}\0".encode(errors="surrogateescape"))
        return f"{self.domain.name[:_NAME]}-{self.side}-{digest.hexdigest()[:16]}".replace("/", "_")


def _allocate(path: Path) -> None:
    """Reserve the disk space now: a disk that fills up under a memory map kills the process without a message."""
    if hasattr(os, "posix_fallocate"):
        with path.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)

"""The images of one domain at one size: decoded when asked for, or once and for all into a cache on disk."""

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
from torch import Tensor

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.files import sweep

Progress = Callable[[str, int, int], None]  # what, done, of how many

_NAME = 40  # letters of a domain's name in that of its cache: names of files may have 255 bytes
_CHUNK = 256  # images that are decoded before the next ones are begun: what bounds the memory


class DomainImages:
    """A domain's images, fitted to a network's size, by their positions in `domain.examples`."""

    def __init__(self, domain: Domain, preprocessing: Preprocessing) -> None:
        self.domain = domain
        self.side = preprocessing.size
        self._preprocessing = preprocessing
        self._cached: np.ndarray | None = None
        self.skipped: dict[str, str] = {}  # name -> why; complete once the images are cached, else what was met

    def take(self, positions: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Images between 0 and 1, (n, 3, side, side), and which they are: those that cannot be read are left out."""
        if self._cached is not None:
            examples = self.domain.examples
            there = [at for at in positions if examples[at].name not in self.skipped]
            stacked = self._cached[np.asarray(there, dtype=np.int64)]
        else:
            read = list(self._read_all(positions))  # an image may be asked for twice, where a domain is small
            there = [at for at, _ in read]
            shape = (0, self.side, self.side, 3)
            stacked = np.stack([image for _, image in read]) if read else np.empty(shape, np.uint8)
        return torch.from_numpy(stacked).permute(0, 3, 1, 2).contiguous().float().div_(255), there

    def cache(self, folder: Path, progress: Progress | None = None) -> None:
        """Decodes every image once, into a file below the folder that later runs find again.

        Raises:
            BadFile: The folder cannot be written to, or what is there is damaged.
        """
        place = folder / self._key()
        if self._misses_images(place):
            shutil.rmtree(place, ignore_errors=True)
        if not (place / "index.json").is_file():
            try:
                self._build(place, progress or (lambda *_: None))
            except OSError as error:
                raise BadFile(
                    f"cannot write the image cache {str(place)!r}: {error.strerror or error}; free some space, choose "
                    "another cache folder, or go without (--no-cache)"
                ) from error
        try:
            self.skipped = json.loads((place / "index.json").read_text(encoding="utf-8"))["skipped"]
            self._cached = np.load(place / "pixels.npy", mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise BadFile(f"the image cache {str(place)!r} is damaged ({error}); delete this folder") from error

    def _misses_images(self, place: Path) -> bool:
        """Whether an image that could not be read when the cache was built can be now: not the file was to blame."""
        try:
            known = json.loads((place / "index.json").read_text(encoding="utf-8"))["skipped"]
        except (OSError, ValueError, KeyError):
            return False
        again = [at for at, example in enumerate(self.domain.examples) if example.name in known]
        return any(self._read(at)[1] is not None for at in again)

    def _build(self, place: Path, progress: Progress) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        sweep(place.parent, ".building-*")
        self.skipped = {}
        building = Path(tempfile.mkdtemp(prefix=".building-", suffix=f".{os.getpid()}", dir=place.parent))
        try:
            total = len(self.domain.examples)
            shape = (total, self.side, self.side, 3)
            pixels = np.lib.format.open_memmap(building / "pixels.npy", mode="w+", dtype=np.uint8, shape=shape)
            _claim(building / "pixels.npy")
            done = 0
            for start in range(0, total, _CHUNK):
                chunk = range(start, min(start + _CHUNK, total))
                for at, image in self._read_all(chunk):
                    pixels[at] = image
                done += len(chunk)
                progress(f"decoding {self.domain.name}", done, total)
            pixels.flush()
            index = {"domain": self.domain.name, "side": self.side, "images": total, "skipped": self.skipped}
            (building / "index.json").write_text(json.dumps(index), encoding="utf-8")
            with contextlib.suppress(OSError):  # another process was faster, with the same content
                building.replace(place)
        finally:
            shutil.rmtree(building, ignore_errors=True)

    def _read_all(self, positions: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
        # Pillow decodes and resizes outside of Python's lock, so threads do.
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
        """Of the images and of what is done to them: whatever changes makes another cache."""
        preprocessing = {k: v for k, v in asdict(self._preprocessing).items() if k not in ("mean", "std")}
        digest = hashlib.sha256(json.dumps([repr(self.domain.read), preprocessing], sort_keys=True).encode())
        for example in self.domain.examples:
            digest.update(f"{example.name}\0{self.domain.read.stamp(example.name)}\0".encode(errors="surrogateescape"))
        return f"{self.domain.name[:_NAME]}-{self.side}-{digest.hexdigest()[:16]}".replace("/", "_")


def _claim(path: Path) -> None:
    """Takes the whole space now: a disk that fills up under a memory map kills the process without a word."""
    if hasattr(os, "posix_fallocate"):
        with path.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def cache_folder() -> Path:
    """Where decoded images and trained networks are kept: the variable DOMAINADAPTOR_CACHE, or the user's cache."""
    given = os.environ.get("DOMAINADAPTOR_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "domainadaptor"

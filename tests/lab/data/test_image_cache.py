import json
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data import image_cache as module
from domainadaptor.lab.data.domains import Domain, Example
from domainadaptor.lab.data.image_cache import DomainImages, cache_folder
from domainadaptor.lab.data.image_folder import FileReader
from domainadaptor.lab.data.preprocessing import Preprocessing, squashed
from tests.lab.data.trees import Plain, plain_domain


@pytest.fixture
def domain(tmp_path):
    """Images of many sizes, one of them damaged, one gone."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "photo"
    folder.mkdir()
    for number in range(9):
        high, wide = rng.integers(5, 60, 2)
        pixels = rng.integers(0, 256, (high, wide, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.{'png' if number % 2 else 'jpg'}")
    (folder / "bad.png").write_bytes(b"no image")
    files = [*sorted(path.name for path in folder.iterdir()), "gone.png"]
    return Domain("photo", tuple(Example(name, 0, "train") for name in files), FileReader(folder))


def places(folder: Path):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("preprocessing", [squashed(16), Preprocessing(12, 20)])
def test_cached_images_are_the_decoded_ones_to_the_last_bit(tmp_path, domain, preprocessing):
    plain, cached = DomainImages(domain, preprocessing), DomainImages(domain, preprocessing)
    cached.cache(tmp_path / "cache")
    order = [10, 3, 9, 0, 8, 3]
    (images, there), (again, there_too) = plain.take(order), cached.take(order)
    assert torch.equal(images, again)
    assert there == there_too == [3, 0, 8, 3]
    assert images.dtype == again.dtype == torch.float32
    assert images.shape[1:] == (3, preprocessing.size, preprocessing.size)
    by_hand = np.asarray(preprocessing.fit(domain.read(domain.examples[0].name))) / np.float32(255)
    assert np.allclose(images[there.index(0)].permute(1, 2, 0).numpy(), by_hand, atol=1e-7)


def test_images_that_cannot_be_read_are_left_out_and_named(tmp_path, domain):
    plain, cached = DomainImages(domain, squashed(8)), DomainImages(domain, squashed(8))
    cached.cache(tmp_path / "cache")
    everything = range(len(domain.examples))
    assert plain.take(everything)[1] == cached.take(everything)[1] == list(range(9))
    assert plain.skipped == cached.skipped
    assert set(plain.skipped) == {"bad.png", "gone.png"}
    for pictures in (plain, cached):
        images, there = pictures.take([9, 10])
        assert images.shape == (0, 3, 8, 8)
        assert there == []


def test_a_second_run_finds_the_cache_and_reads_no_image(tmp_path, domain, monkeypatch):
    DomainImages(domain, squashed(8)).cache(tmp_path / "cache")
    monkeypatch.setattr(module, "ThreadPoolExecutor", None)  # whatever decodes would fail
    again = DomainImages(domain, squashed(8))
    again.cache(tmp_path / "cache")
    assert set(again.skipped) == {"bad.png", "gone.png"}
    assert len(again.take(range(9))[0]) == 9


def test_an_image_that_can_be_read_again_comes_back(tmp_path, domain):
    broken = domain.read.folder / "bad.png"
    seen = broken.stat()
    DomainImages(domain, squashed(8)).cache(tmp_path / "cache")
    Image.new("L", (1, 1), 255).save(broken)
    assert broken.stat().st_size > seen.st_size
    key = DomainImages(domain, squashed(8))._key()
    (old,) = (tmp_path / "cache").iterdir()
    old.rename(tmp_path / "cache" / key)  # as if size and time were what they had been: a disk that did not answer
    again = DomainImages(domain, squashed(8))
    again.cache(tmp_path / "cache")
    assert set(again.skipped) == {"gone.png"}
    assert (again.take([9])[0] == 1).all()
    assert places(tmp_path / "cache") == [key]


def test_whatever_changes_makes_another_cache(tmp_path, domain):
    cache = tmp_path / "cache"
    DomainImages(domain, squashed(8)).cache(cache)
    variants = [
        (domain, squashed(9)),
        (domain, Preprocessing(8, 8)),
        (replace(domain, examples=domain.examples[1:]), squashed(8)),
    ]
    for number, (changed, preprocessing) in enumerate(variants, start=2):
        DomainImages(changed, preprocessing).cache(cache)
        assert len(places(cache)) == number
    Image.new("RGB", (30, 30), "red").save(domain.read.folder / "0.jpg")
    fresh = DomainImages(domain, squashed(8))
    fresh.cache(cache)
    assert len(places(cache)) == 5
    assert (fresh.take([0])[0][0, 0] > 0.98).all()
    # Labels, splits and the network's means do not touch the pixels.
    relabeled = replace(domain, examples=tuple(e._replace(label=3, split="val") for e in domain.examples))
    DomainImages(relabeled, replace(squashed(8), mean=(0, 0, 0))).cache(cache)
    assert len(places(cache)) == 5


@dataclass(frozen=True)
class Meeting(Plain):
    """Waits at its first image until both builders are there."""

    barrier: threading.Barrier = None

    def __call__(self, name):
        if name == "000":
            self.barrier.wait(timeout=20)
        return super().__call__(name)

    def __repr__(self):
        return "Meeting"


def test_two_that_build_the_same_cache_at_once(tmp_path):
    reader = Meeting(barrier=threading.Barrier(2))
    both = [DomainImages(replace(plain_domain(), read=reader), squashed(8)) for _ in range(2)]
    failed = []

    def build(pictures):
        try:
            pictures.cache(tmp_path / "cache")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=build, args=(pictures,)) for pictures in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not failed
    assert len(places(tmp_path / "cache")) == 1  # and nothing half built
    expected = DomainImages(plain_domain(), squashed(8)).take(range(10))[0]
    for pictures in both:
        assert torch.equal(pictures.take(range(10))[0], expected)


def test_a_failed_build_leaves_nothing_behind(tmp_path):
    @dataclass(frozen=True)
    class Failing(Plain):
        def __call__(self, name):
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        DomainImages(replace(plain_domain(), read=Failing()), squashed(8)).cache(tmp_path / "cache")
    assert places(tmp_path / "cache") == []


def test_damaged_caches_and_places_that_cannot_be_written(tmp_path):
    DomainImages(plain_domain(), squashed(8)).cache(tmp_path / "cache")
    (place,) = (tmp_path / "cache").iterdir()
    (place / "pixels.npy").write_bytes(b"half")
    with pytest.raises(BadFile, match="is corrupt .*delete this folder"):
        DomainImages(plain_domain(), squashed(8)).cache(tmp_path / "cache")
    (place / "index.json").unlink()
    with pytest.raises(BadFile, match="is corrupt .*delete this folder"):
        DomainImages(plain_domain(), squashed(8)).cache(tmp_path / "cache")
    (tmp_path / "file").touch()
    with pytest.raises(BadFile, match="Cannot write the image cache .*--no-cache"):
        DomainImages(plain_domain(), squashed(8)).cache(tmp_path / "file")


def test_progress_and_the_index(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 4)
    told = []
    DomainImages(plain_domain(broken=[2]), squashed(8)).cache(tmp_path / "cache", lambda *moment: told.append(moment))
    assert told == [("decoding plain", done, 10) for done in (4, 8, 10)]
    (place,) = (tmp_path / "cache").iterdir()
    index = json.loads((place / "index.json").read_text())
    assert index == {"domain": "plain", "side": 8, "images": 10, "skipped": {"002": "002 is broken"}}


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setenv("DOMAINADAPTOR_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("DOMAINADAPTOR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "domainadaptor"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "domainadaptor"

import pickle
import zlib

import numpy as np
import pytest
from PIL import Image

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.corruptions import CORRUPTIONS, corrupt
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.data.seeds import derived_seed
from tests.lab.data.trees import plant

CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()


def arrays(folder, each=4):
    """Like the published files, with four images a severity; each begins with its severity and its number."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate((*CORRUPTIONS, "speckle_noise")):
        pixels = np.full((5 * each, 32, 32, 3), number, np.uint8)
        for at in range(5 * each):
            pixels[at, 0, 0] = (at // each + 1, at % each, 99)
        np.save(folder / f"{name}.npy", pixels)
    np.save(folder / "labels.npy", np.tile(np.arange(each, dtype=np.uint8) + 3, 5))
    return folder


def images(root, place, count=2):
    rng = np.random.default_rng(0)
    for kind in CLASSES:
        (root / place / kind).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / place / kind / f"{number:04d}.png")
    return root


@pytest.mark.parametrize("place", [".", "CIFAR-10-C", "cifar10-c"])
@pytest.mark.parametrize("severity", [1, 3, 5])
def test_published_files(tmp_path, place, severity):
    arrays(tmp_path / place)
    found = open_dataset("cifar10-c", tmp_path, severity=severity)
    assert found.name == f"cifar10-c-{severity}"
    assert tuple(found.domains) == CORRUPTIONS
    assert found.splits == "all images are for testing, none to train on; the published files"
    fog = found.domains["fog"]
    assert [e.label for e in fog.examples] == [3, 4, 5, 6]
    assert not fog.select("train")
    assert fog.select("test") == list(fog.examples)
    for number, example in enumerate(fog.examples):
        image = fog.read(example.name)
        assert image.mode == "RGB"
        assert image.getpixel((0, 0)) == (severity, number, 99)
        assert image.getpixel((5, 5)) == (CORRUPTIONS.index("fog"),) * 3
    assert pickle.loads(pickle.dumps(fog.read)) == fog.read


def test_published_files_stay_on_disk(tmp_path):
    arrays(tmp_path)
    reader = open_dataset("cifar10-c", tmp_path).domains["fog"].read
    assert isinstance(reader.pixels(), np.memmap)
    before = reader.stamp("")
    arrays(tmp_path, each=5)
    assert reader.stamp("") != before
    assert reader("00024").getpixel((0, 0)) == (5, 4, 99)


def test_clean_images_beside_published_files(tmp_path):
    arrays(tmp_path / "CIFAR-10-C")
    images(tmp_path, "cifar10/test")
    found = open_dataset("cifar10-c", tmp_path)
    assert tuple(found.domains) == ("clean", *CORRUPTIONS)
    assert len(found.domains["clean"].examples) == 20
    assert len(found.domains["fog"].examples) == 4


def test_files_without_images(tmp_path):
    arrays(tmp_path, each=0)
    with pytest.raises(BadFile, match=r"shape \(0, 32, 32, 3\), with labels of shape \(0,\); expected uint8 of shape"):
        open_dataset("cifar10-c", tmp_path)


def test_incomplete_and_wrong_files(tmp_path):
    arrays(tmp_path)
    good = np.load(tmp_path / "fog.npy")
    for wrong in (good[:-1], good[..., 0], good.astype(np.float32), good[:10], good[:0], good[0, 0, 0, 0]):
        np.save(tmp_path / "fog.npy", wrong)
        with pytest.raises(BadFile, match=r"fog.npy.*expected uint8 of shape \(50000, 32, 32, 3\)"):
            open_dataset("cifar10-c", tmp_path)
    (tmp_path / "fog.npy").write_bytes(b"\x93NUMPY cut off")
    with pytest.raises(BadFile, match="not a complete .npy file"):
        open_dataset("cifar10-c", tmp_path)
    with (tmp_path / "fog.npy").open("wb") as file:
        np.savez(file, fog=good)
    with pytest.raises(BadFile, match="fog.npy' is not a complete .npy file: it is a zip archive; unpack it"):
        open_dataset("cifar10-c", tmp_path)
    np.save(tmp_path / "fog.npy", good)
    np.save(tmp_path / "labels.npy", np.full(20, 10))
    with pytest.raises(BadFile, match="whole numbers from 0 to 9"):
        open_dataset("cifar10-c", tmp_path)
    (tmp_path / "snow.npy").unlink()
    (tmp_path / "labels.npy").unlink()
    with pytest.raises(BadFile, match="incomplete: labels, snow missing"):
        open_dataset("cifar10-c", tmp_path)


@pytest.mark.parametrize("place", ["cifar10-jpeg/test", "cifar10/test", "test", "."])
def test_made_from_images(tmp_path, place):
    images(tmp_path, place)
    jpeg = place.startswith("cifar10-jpeg")
    found = open_dataset("cifar10-c", tmp_path, severity=2, jpeg=jpeg, seed=7)
    assert found.name == ("cifar10-c-jpeg-2" if jpeg else "cifar10-c-2")
    assert tuple(found.domains) == ("clean", *CORRUPTIONS)
    assert found.classes == tuple(CLASSES)
    clean, name = found.domains["clean"], "frog/0001.png"
    assert clean.read(name).tobytes() == Image.open(tmp_path / place / name).tobytes()
    for corruption in ("shot_noise", "contrast"):
        domain = found.domains[corruption]
        assert domain.examples == clean.examples
        seed = derived_seed(7, 2, zlib.crc32(corruption.encode()), zlib.crc32(name.encode()))
        expected = corrupt(clean.read(name), corruption, 2, constants="cifar", seed=seed)
        assert domain.read(name).tobytes() == expected.tobytes()


def test_each_image_has_noise_of_its_own(tmp_path):
    root = plant(tmp_path, *(f"test/{kind}" for kind in CLASSES), images=2)
    noise = open_dataset("cifar10-c", root).domains["gaussian_noise"]
    made = [noise.read(name).tobytes() for name in ("cat/0.png", "cat/1.png", "dog/0.png", "cat/0.png")]
    assert made[0] == made[3]
    assert len(set(made)) == 3
    other = open_dataset("cifar10-c", root, seed=1).domains["gaussian_noise"]
    assert other.read("cat/0.png").tobytes() != made[0]
    readers = [open_dataset("cifar10-c", root, severity=s).domains[d].read for s in (1, 2) for d in ("fog", "snow")]
    assert len({repr(reader) for reader in readers}) == 4
    assert len({reader.stamp("cat/0.png") for reader in readers}) == 4


def test_nothing_there(tmp_path):
    plant(tmp_path, "test/airplane", "pacs")
    with pytest.raises(
        BadFile,
        match=r"which has pacs/, test/.*: expected labels.npy and 15 files.*test.npz or in cifar10/test/<class>/",
    ):
        open_dataset("cifar10-c", tmp_path)


@pytest.mark.parametrize("severity", [0, 6, 1.5, "3", True])
def test_severities_that_there_are_not(tmp_path, severity):
    with pytest.raises(BadOption, match=r"severity=.*(from 1 to 5|the number 3)"):
        open_dataset("cifar10-c", tmp_path, severity=severity)


def test_real_images(data_root):
    jpegs = open_dataset("cifar10-c", data_root, jpeg=True)
    assert {len(domain.examples) for domain in jpegs.domains.values()} == {10_000}
    assert jpegs.domains["jpeg_compression"].read("ship/0000.jpg").size == (32, 32)


def test_lossless_images_are_preferred(tmp_path):
    images(tmp_path, "cifar10/test")
    pixels = np.random.default_rng(1).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    np.savez_compressed(tmp_path / "cifar10" / "test.npz", images=pixels, labels=np.arange(4))
    found = open_dataset("cifar10-c", tmp_path)
    assert [example.label for example in found.domains["fog"].examples] == [0, 1, 2, 3]
    assert np.array_equal(found.domains["clean"].read("00002"), pixels[2])
    expected = corrupt(Image.fromarray(pixels[2]), "contrast", 5, constants="cifar")
    assert found.domains["contrast"].read("00002").tobytes() == expected.tobytes()


def test_jpeg_files_are_offered_where_they_are_the_only_ones(tmp_path):
    images(tmp_path, "cifar10-jpeg/test")
    with pytest.raises(BadFile, match="Pass jpeg=true to start from cifar10-jpeg/test"):
        open_dataset("cifar10-c", tmp_path)

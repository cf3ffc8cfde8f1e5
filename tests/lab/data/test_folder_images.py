import numpy as np
import pytest
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.images import FolderImages
from domainadaptor.lab.data.preprocessing import Preprocessing

TO_TENSOR = Preprocessing(8, 8, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)).transform()


@pytest.fixture
def folder(tmp_path):
    """Ten grey images at two depths, each of its own brightness, and files that are none."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for at in range(10):
        place = tmp_path if at % 2 else tmp_path / "deep" / "er"
        Image.fromarray(np.full((8, 8, 3), 10 * at, np.uint8)).save(place / f"{at}.png")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty.png").write_bytes(b"")
    return tmp_path


def levels(images):
    return [round(float(image.mean()) * 25.5) for batch in images for image in batch]


def test_all_images_come_once_in_batches(folder):
    images = FolderImages(folder, TO_TENSOR, batch_size=4)
    assert [tuple(batch.shape) for batch in images] == [(4, 3, 8, 8), (4, 3, 8, 8), (2, 3, 8, 8)]
    assert sorted(levels(images)) == list(range(10))
    assert levels(images) == levels(images)  # gone through a second time
    assert levels(images) != sorted(levels(images))
    assert len(images) == 10


def test_a_seed_chooses(folder):
    some = [FolderImages(folder, TO_TENSOR, seed=seed, limit=5) for seed in (0, 0, 1)]
    assert [len(images) for images in some] == [5, 5, 5]
    assert len(set(levels(some[0]))) == 5
    assert levels(some[0]) == levels(some[1])
    assert set(levels(some[0])) != set(levels(some[2]))


def test_a_file_that_breaks_off_is_passed_over(folder):
    whole = (folder / "1.png").read_bytes()
    (folder / "1.png").write_bytes(whole[: len(whole) // 2])
    assert sorted(levels(FolderImages(folder, TO_TENSOR, batch_size=3))) == [0, *range(2, 10)]


def test_nothing_to_take_is_said(tmp_path):
    with pytest.raises(BadFile, match="No folder '"):
        FolderImages(tmp_path / "none", TO_TENSOR)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(BadFile, match="No readable image among the 1 file below"):
        FolderImages(tmp_path, TO_TENSOR)

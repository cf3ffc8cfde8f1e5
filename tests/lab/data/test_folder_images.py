import base64
import io

import numpy as np
import pytest
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.images import FolderImages, as_url
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
    images = FolderImages(folder, TO_TENSOR, batch_size=3)
    assert sorted(levels(images)) == [0, *range(2, 10)]
    assert [int(name[-5]) for name in images.names()] == levels(images)


def test_nothing_to_take_is_said(tmp_path):
    with pytest.raises(BadFile, match="No folder '"):
        FolderImages(tmp_path / "none", TO_TENSOR)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(BadFile, match="No readable image among the 1 file below"):
        FolderImages(tmp_path, TO_TENSOR)


def test_thumbnails_are_small_and_exact_where_the_image_is():
    exact = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 50, 3), dtype=np.uint8))
    head, _, data = as_url(exact).partition(",")
    assert head == "data:image/png;base64"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), np.asarray(exact))
    head, _, data = as_url(Image.new("RGB", (400, 200))).partition(",")
    assert head == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (112, 56)

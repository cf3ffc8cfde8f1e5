import json
import pickle

import numpy as np
import pytest
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.data.sets.cifar10 import CLASSES


def numbered(count, start=0):
    """Images that hold their number."""
    pixels = np.zeros((count, 32, 32, 3), np.uint8)
    pixels[:] = np.arange(start, start + count)[:, None, None, None]
    return pixels


def sheet(path, pixels):
    Image.fromarray(pixels.reshape(len(pixels), 1024, 3)).save(path)


def test_arrays(tmp_path):
    (tmp_path / "cifar10").mkdir()
    labels = np.array([3, 9, 0])
    np.savez_compressed(tmp_path / "cifar10" / "test.npz", images=numbered(3), labels=labels)
    found = open_dataset("cifar10", tmp_path)
    assert (found.classes, list(found.domains)) == (CLASSES, ["test"])
    assert [(e.name, e.label, e.split) for e in found.domains["test"].examples][1] == ("00001", 9, "test")
    read = pickle.loads(pickle.dumps(found.domains["test"].read))
    assert [np.asarray(read(e.name)).max() for e in found.domains["test"].examples] == [0, 1, 2]


def test_sheets_of_the_npm_package(tmp_path):
    for at in range(5):
        sheet(tmp_path / f"data_batch_{at + 1}.png", numbered(20, 20 * at))
    sheet(tmp_path / "test_batch.png", numbered(4, 200))
    (tmp_path / "train_lables.json").write_text(json.dumps([at % 10 for at in range(100)]))
    (tmp_path / "test_lables.json").write_text("[1, 2, 3, 4]")
    found = open_dataset("cifar10", tmp_path)
    train, test = found.domains["train"], found.domains["test"]
    assert [np.asarray(test.read(e.name)).min() for e in test.examples] == [200, 201, 202, 203]
    assert train.split_counts() == {"train": 90, "val": 10}
    for example in train.examples:
        assert np.asarray(train.read(example.name)).max() == int(example.name)
        assert example.label == int(example.name) % 10


def test_labels_that_do_not_fit(tmp_path):
    np.savez(tmp_path / "test.npz", images=numbered(3), labels=np.arange(4))
    with pytest.raises(BadFile, match="and a label for each"):
        open_dataset("cifar10", tmp_path)
    np.savez(tmp_path / "test.npz", images=numbered(3), labels=np.array([0, 1, 10]))
    with pytest.raises(BadFile, match="whole numbers from 0 to 9"):
        open_dataset("cifar10", tmp_path)
    np.savez(tmp_path / "test.npz", images=numbered(3))
    with pytest.raises(BadFile, match="not a complete .npz file"):
        open_dataset("cifar10", tmp_path)
    (tmp_path / "test.npz").unlink()
    with pytest.raises(BadFile, match="expected cifar10/test.npz, or test_batch.png and"):
        open_dataset("cifar10", tmp_path)


def test_real_images(data_root):
    test = open_dataset("cifar10", data_root).domains["test"]
    assert len(test.examples) == 10_000
    assert test.examples[0].label == CLASSES.index("cat")  # the first test image, as published

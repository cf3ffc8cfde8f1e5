import numpy as np
import pytest
from PIL import Image

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.corruptions import CORRUPTIONS
from domainadaptor.lab.data.image_cache import DomainImages
from domainadaptor.lab.data.loaders import TrainingBatches
from domainadaptor.lab.data.preprocessing import Preprocessing, squashed
from domainadaptor.lab.data.registry import open_dataset
from tests.lab.data.trees import names, plant


@pytest.fixture
def root(tmp_path):
    rng = np.random.default_rng(0)
    for kind in ("große Katze", "Hund"):
        (tmp_path / "mein" / kind).mkdir(parents=True)
        for number in range(2):
            pixels = rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "mein" / kind / f"{number}.png")
    (tmp_path / "mein" / "Hund" / "notes.txt").touch()
    return tmp_path / "mein"


def test_clean_and_fifteen(root):
    found = open_dataset("corrupted", root, size=28)
    assert found.name == "mein-corrupted-28px-5"
    assert tuple(found.domains) == ("clean", *CORRUPTIONS)
    assert found.counts()["fog"] == {"Hund": 2, "große Katze": 2}
    assert list(found.skipped) == ["clean/Hund/notes.txt"]
    with Image.open(root / "Hund" / "0.png") as original:
        expected = Preprocessing(28, 32).fit(original.convert("RGB"))
    clean = found.domains["clean"].read("Hund/0.png")
    assert clean.tobytes() == expected.tobytes()
    for name in ("fog", "pixelate"):
        bad = found.domains[name].read("Hund/0.png")
        assert bad.size == (28, 28)
        assert bad.tobytes() != clean.tobytes()
        assert bad.tobytes() == open_dataset("corrupted", root, size=28).domains[name].read("Hund/0.png").tobytes()


def test_sizes_and_names(root):
    assert open_dataset("corrupted", root).domains["clean"].read("Hund/0.png").size == (224, 224)
    small = open_dataset("corrupted", root, constants="cifar", severity=2)
    assert small.name == "mein-corrupted-cifar-2"
    assert small.domains["clean"].read("Hund/0.png").size == (32, 32)
    options = ({}, {"constants": "cifar"}, {"severity": 1}, {"size": 32}, {"seed": 3})
    readers = {repr(open_dataset("corrupted", root, **chosen).domains["fog"].read) for chosen in options}
    assert len(readers) == len(options)


def test_nothing_to_train_on(root):
    clean = DomainImages(open_dataset("corrupted", root).domains["clean"], squashed(8))
    with pytest.raises(BadFile, match="Domain 'clean' has no training images: all of them are for"):
        TrainingBatches([clean], squashed(8), 2, 0)


def test_damaged_images_are_found_in_the_clean_domain(root):
    (root / "Hund" / "bad.png").write_bytes(b"x")
    found = open_dataset("corrupted", root)
    with pytest.raises(BadFile):
        found.domains["clean"].read("Hund/bad.png")
    with pytest.raises(BadFile):
        found.domains["fog"].read("Hund/bad.png")


def test_classes_may_have_folders_beside_their_images(root):
    for kind in ("große Katze", "Hund"):
        plant(root / kind, "more", images=1)
        (root / kind / ".one.png").unlink()
    found = open_dataset("corrupted", root).domains["clean"]
    assert names(found) == [f"{kind}/{name}.png" for kind in ("Hund", "große Katze") for name in ("0", "1", "more/0")]


def test_wrong_folders_and_options(root):
    with pytest.raises(BadFile, match="has mein/: expected .*/<class>/images, without a folder for the domain"):
        open_dataset("corrupted", root.parent)
    with pytest.raises(BadOption, match="did you mean 'imagenet'"):
        open_dataset("corrupted", root, constants="imagenat")
    with pytest.raises(BadOption, match="size=0"):
        open_dataset("corrupted", root, size=0)
    with pytest.raises(BadOption, match="no option 'severety'; did you mean 'severity'"):
        open_dataset("corrupted", root, severety=1)

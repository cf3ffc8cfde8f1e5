import numpy as np
import pytest
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.contact_sheet import contact_sheet
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example
from tests.lab.data.trees import Plain


class Counting(Plain):
    """Remembers what was read; the color tells the class."""

    read = []

    def __call__(self, name):
        self.read.append(name)
        if name in self.broken:
            raise BadFile("broken")
        return Image.new("RGB", (30, 10), (int(name.partition("-")[0]), 200, 100))


@pytest.fixture(autouse=True)
def forget():
    Counting.read.clear()


def dataset(domains, classes, images=5, broken=()):
    examples = tuple(Example(f"{c}-{n}", c, "train") for c in range(len(classes)) for n in range(images))
    read = Counting(broken=broken)
    return DomainDataset("set", tuple(classes), {d: Domain(d, examples, read) for d in domains}, "none")


def colors(sheet):
    return {tuple(color) for color in np.asarray(sheet.image).reshape(-1, 3)}


def test_a_few_images_of_every_class_and_domain():
    sheet = contact_sheet(dataset(["photo", "sketch"], ["dog", "cat", "cow"]))
    assert sheet.shows == "4 images of each class and domain"
    assert len(Counting.read) == 2 * 3 * 4  # nothing else is decoded
    assert {(c, 200, 100) for c in range(3)} <= colors(sheet)
    assert sheet.unreadable == {}


@pytest.mark.parametrize("count", [65, 126])
def test_of_many_classes_some(count):
    sheet = contact_sheet(dataset(["photo", "sketch"], [f"class_{n}" for n in range(count)]))
    assert sheet.shows == f"only 10 of {count} classes; 1 image of each class and domain"
    shown = sorted({int(name.partition("-")[0]) for name in Counting.read})
    assert len(shown) == 10
    assert max(np.diff(shown)) <= count // 10 + 2  # evenly spread
    assert sheet.image.width < 1700


def test_of_many_domains_some():
    sheet = contact_sheet(dataset([f"d{n}" for n in range(50)], ["dog", "cat"], images=1))
    assert sheet.shows.startswith("only 20 of 50 domains")


def test_empty_classes_and_damaged_images():
    opened = dataset(["photo"], ["dog", "cat"], images=2, broken=("0-1",))
    none = Domain("art", tuple(e for e in opened.domains["photo"].examples if e.label == 1), Counting())
    sheet = contact_sheet(DomainDataset("set", opened.classes, {**opened.domains, "art": none}, ""))
    assert sheet.unreadable == {"photo/0-1": "broken"}
    assert (0xB3, 0x26, 0x1E) in colors(sheet)


def test_names_of_all_kinds():
    strange = ["große Katze", "猫", "кот", "e\u0301", "x" * 300, "a_" * 200, "new\nline", "no\udcfftext", "[b]", " "]
    sheet = contact_sheet(dataset(strange, strange, images=1))
    assert sheet.image.width < 2000

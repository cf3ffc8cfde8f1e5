import numpy as np
import pytest
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.contact_sheet import contact_sheet
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example
from tests.lab.data.trees import Plain


class Colored(Plain):
    """The color is that of the class and the number of the image."""

    def __call__(self, name):
        if name in self.broken:
            raise BadFile("broken")
        return Image.new("RGB", (30, 30), (*map(int, name.split("-")), 100))


def dataset(domains, classes, images=2, broken=()):
    examples = tuple(Example(f"{c}-{n}", c, "train") for c in range(len(classes)) for n in range(images))
    read = Colored(broken=broken)
    return DomainDataset("set", tuple(classes), {d: Domain(d, examples, read) for d in domains}, "none")


def middles(sheet):
    """The colors in the middle of the images, row by row."""
    return np.asarray(sheet.image)[48::100, 48::100].tolist()


def test_an_image_of_every_class_and_domain():
    sheet = contact_sheet(dataset(["photo", "sketch"], ["dog", "cat", "cow"]))
    assert (sheet.domains, sheet.classes) == (["photo", "sketch"], ["dog", "cat", "cow"])
    assert middles(sheet) == [[[label, 0, 100] for label in range(3)]] * 2


def test_corrupt_images_are_replaced_and_empty_classes_are_gray():
    opened = dataset(["photo"], ["dog", "cat"], broken=("0-0",))
    art = Domain("art", tuple(e for e in opened.domains["photo"].examples if e.label == 1), Colored())
    sheet = contact_sheet(DomainDataset("set", opened.classes, {**opened.domains, "art": art}, ""))
    assert middles(sheet) == [[[0, 1, 100], [1, 0, 100]], [[0xE0] * 3, [1, 0, 100]]]


@pytest.mark.parametrize("count", [65, 126])
def test_of_many_classes_and_domains_some_are_shown(count):
    sheet = contact_sheet(dataset([f"d{n}" for n in range(50)], [str(n) for n in range(count)], images=1))
    assert sheet.image.size == (2000, 2000)
    assert max(np.diff([int(name) for name in sheet.classes])) <= count // 20 + 2  # evenly spread

import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.data.sets.office_home import _CLASSES
from tests.lab.data.trees import names, plant

NAMES = ["art", "clipart", "product", "real_world"]


def build(root, place, domains, style=str):
    """All classes in the first domain and one in the others, which keeps it small."""
    folders = [f"{place}/{domains[0]}/{style(kind)}" for kind in _CLASSES]
    folders += [f"{place}/{domain}/{style('Alarm_Clock')}" for domain in domains[1:]]
    return plant(root, *folders, images=2)


@pytest.mark.parametrize(
    ("place", "last"),
    [
        (".", "Real World"),
        ("OfficeHomeDataset_10072016", "Real World"),
        ("office_home", "Real World"),
        ("OfficeHome", "RealWorld"),
        ("Office-Home", "Real_World"),
    ],
)
def test_layouts_without_a_split(tmp_path, place, last):
    found = open_dataset("office-home", build(tmp_path, place, ("Art", "Clipart", "Product", last)))
    assert list(found.domains) == NAMES
    assert len(found.classes) == 65
    assert found.counts()["art"] == dict.fromkeys(_CLASSES, 2)
    assert found.counts()["real_world"] == dict.fromkeys(_CLASSES, 0) | {"Alarm_Clock": 2}
    assert "drawn with seed 0" in found.splits


def test_dassl(tmp_path):
    """Lower case, and train and val between domains and classes."""
    for part in ("train", "val"):
        folders = [f"office_home_dg/art/{part}/{kind.lower()}" for kind in _CLASSES]
        folders += [f"office_home_dg/{domain}/{part}/alarm_clock" for domain in NAMES[1:]]
        plant(tmp_path, *folders, images=1)
    build(tmp_path, "office_home", ("Art", "Clipart", "Product", "Real World"))  # the one with a split is preferred
    found = open_dataset("office-home", tmp_path)
    assert found.splits == "the published folders train, val"
    assert names(found.domains["product"], "train") == ["train/alarm_clock/0.png"]
    assert names(found.domains["product"], "val") == ["val/alarm_clock/0.png"]
    assert len(found.domains["art"].select("test")) == 130


def test_absent_classes(tmp_path):
    plant(tmp_path, *(f"{domain}/Alarm_Clock" for domain in NAMES))
    with pytest.raises(BadFile, match="64 of 65 classes have no image in any of art, .*: Backpack, Batteries"):
        open_dataset("office-home", tmp_path)

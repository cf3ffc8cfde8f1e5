import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.registry import open_dataset
from tests.lab.data.trees import names, plant

CLASSES = ("bird", "car", "chair", "dog", "person")
PUBLISHED = ("CALTECH", "LABELME", "PASCAL", "SUN")
DOMAINBED = ("Caltech101", "LabelMe", "VOC2007", "SUN09")
NAMES = ["caltech", "labelme", "pascal", "sun"]


def published(root, place="VLCS", parts=("train", "crossval", "test")):
    """As published: classes are numbers, and `full` repeats train and crossval."""
    for part in parts:
        folders = [f"{place}/{domain}/{part}/{kind}" for domain in PUBLISHED for kind in range(5)]
        plant(root, *folders, images=2, name=part + "_imgs_{}.jpg")
    full = [f"{place}/{domain}/full/{kind}" for domain in PUBLISHED for kind in range(5)]
    for part in ("train", "crossval"):
        plant(root, *full, images=2, name=part + "_imgs_{}.jpg")
    return root


@pytest.mark.parametrize("place", [".", "VLCS", "vlcs"])
def test_the_published_folders(tmp_path, place):
    found = open_dataset("vlcs", published(tmp_path, place))
    assert found.classes == CLASSES
    assert list(found.domains) == NAMES
    assert found.splits == "the published folders train, crossval, test"
    for domain in found.domains.values():
        assert names(domain, "train") == [f"train/{kind}/train_imgs_{n}.jpg" for kind in range(5) for n in range(2)]
        assert names(domain, "val")[0] == "crossval/0/crossval_imgs_0.jpg"
        assert len(domain.select("val")) == 10
        assert (
            len(domain.select("test")) == len(domain.examples) == 30
        )  # as in the paper's lists; `full` is not counted
        assert domain.examples[-1].label == 4
    assert found.skipped == {f"{name}/full": "repeats images of the other folders" for name in NAMES}


def test_domainbed(tmp_path):
    plant(tmp_path, *(f"VLCS/{d}/{c}" for d in DOMAINBED for c in CLASSES), images=10)
    found = open_dataset("vlcs", tmp_path)
    assert list(found.domains) == NAMES
    assert found.domains["pascal"].read.folder.name == "VOC2007"
    assert "drawn with seed 0" in found.splits
    assert all(len(domain.select("val")) == 5 for domain in found.domains.values())


def test_full_alone(tmp_path):
    found = open_dataset("vlcs", published(tmp_path, parts=()))
    assert found.counts() == {name: dict.fromkeys(CLASSES, 4) for name in NAMES}
    assert "drawn with seed 0" in found.splits
    assert all(len(domain.select("val")) == 5 for domain in found.domains.values())


def test_a_split_that_is_partly_there(tmp_path):
    with pytest.raises(BadFile, match="has train, test and lacks crossval"):
        open_dataset("vlcs", published(tmp_path, parts=("train", "test")))

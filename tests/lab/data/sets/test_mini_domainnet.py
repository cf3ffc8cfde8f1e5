import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.locate import fold
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.data.sets.mini_domainnet import _CLASSES
from tests.lab.data.trees import names, plant

DOMAINS = ("clipart", "painting", "real", "sketch")


def build(root, place):
    """All classes in one domain, and classes and domains of DomainNet that are not of this set."""
    folders = [f"{place}/clipart/{kind}" for kind in _CLASSES]
    folders += [f"{place}/{domain}/zebra" for domain in DOMAINS[1:]]
    return plant(root, *folders, f"{place}/real/zigzag", f"{place}/infograph/zigzag", images=2)


def write_lists(folder):
    folder.mkdir(parents=True)
    for domain in DOMAINS:
        kinds = _CLASSES if domain == "clipart" else ("zebra",)
        for part, number in (("train", 0), ("test", 1)):
            lines = [f"{domain}/{kind}/{number}.png {_CLASSES.index(kind)}" for kind in kinds]
            (folder / f"{domain}_{part}.txt").write_text("\n".join(lines) + "\n")


def test_the_classes_are_those_of_the_published_lists():
    """A few labels as the lists have them."""
    labels = {"aircraft_carrier": 0, "bear": 9, "cello": 30, "cell_phone": 31, "feather": 49, "The_Eiffel_Tower": 115}
    labels |= {"goatee": 58, "lobster": 71, "see_saw": 98, "squirrel": 105, "teddy-bear": 113, "zebra": 125}
    assert {kind: _CLASSES.index(kind) for kind in labels} == labels
    assert len(set(map(fold, _CLASSES))) == 126


@pytest.mark.parametrize("place", [".", "domainnet", "domain_net", "DomainNet"])
def test_with_the_lists(tmp_path, place):
    build(tmp_path, place)
    write_lists(tmp_path / place / "splits_mini")
    # Lists of all of DomainNet lie beside the images; they are others.
    (tmp_path / place / "clipart_train.txt").write_text("clipart/zigzag/0.png 344\n")
    found = open_dataset("mini-domainnet", tmp_path)
    assert found.splits == "the published lists"
    assert list(found.domains) == list(DOMAINS)
    assert names(found.domains["real"], "train") == ["zebra/0.png"]
    assert names(found.domains["real"], "val") == ["zebra/1.png"]
    assert names(found.domains["real"], "test") == ["zebra/0.png", "zebra/1.png"]
    assert len(found.domains["clipart"].select("test")) == 252
    assert found.skipped == {}


def test_listed_but_missing(tmp_path):
    build(tmp_path, "domainnet")
    write_lists(tmp_path / "domainnet" / "splits_mini")
    (tmp_path / "domainnet/clipart/ant/1.png").unlink()
    found = open_dataset("mini-domainnet", tmp_path)
    assert found.skipped == {"clipart/ant/1.png": "in the published list, but not on disk"}
    assert len(found.domains["clipart"].select("val")) == 125


def test_without_the_lists(tmp_path):
    found = open_dataset("mini-domainnet", build(tmp_path, "DomainNet"))
    assert found.splits.startswith("no lists in splits_mini, so all images of the classes; a tenth")
    assert len(found.domains["clipart"].examples) == 252
    assert len(found.domains["real"].select("test")) == 2


def test_lists_that_are_no_split(tmp_path):
    """Some programs come with lists that name every image for training and for testing."""
    build(tmp_path, "DomainNet")
    folder = tmp_path / "DomainNet" / "splits_mini"
    write_lists(folder)
    for domain in DOMAINS:
        (folder / f"{domain}_train.txt").write_text((folder / f"{domain}_test.txt").read_text())
    with pytest.raises(BadFile, match="they are not a split"):
        open_dataset("mini-domainnet", tmp_path)

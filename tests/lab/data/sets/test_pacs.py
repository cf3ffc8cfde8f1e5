import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.registry import open_dataset, published_images
from tests.lab.data.trees import names, plant

CLASSES = "dog elephant giraffe guitar horse house person".split()
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


def build(root, place, domains=DOMAINS, images=2):
    return plant(root, *(f"{place}/{d}/{c}" for d in domains for c in CLASSES), images=images)


def write_lists(folder):
    """One-based labels, as published: the last image of each class validates."""
    folder.mkdir(parents=True, exist_ok=True)
    for domain in DOMAINS:
        for part, number in (("train", 0), ("crossval", 1)):
            lines = [f"{domain}/{kind}/{number}.png {at}" for at, kind in enumerate(CLASSES, start=1)]
            (folder / f"{domain}_{part}_kfold.txt").write_text("\n".join(lines) + "\n")


PLACES = [".", "pacs", "PACS", "PACS/kfold", "kfold", "pacs/images", "PACS/Raw images/kfold", "pacs_data/pacs_data",
          "pacs/images/kfold", "images/kfold"]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_layouts_without_lists(tmp_path, place):
    build(tmp_path, place)
    found = open_dataset("pacs", tmp_path)
    assert list(found.domains) == list(DOMAINS)
    assert found.classes == tuple(CLASSES)
    assert all(len(domain.examples) == 14 for domain in found.domains.values())
    assert "drawn with seed 0" in found.splits
    assert open_dataset("pacs", tmp_path, seed=1).splits.endswith("seed 1")


@pytest.mark.parametrize(
    ("place", "lists"),
    [
        ("PACS", "PACS"),
        ("pacs/images", "pacs/splits"),
        ("PACS/kfold", "PACS/kfold"),
        ("PACS/kfold", "PACS/pacs_label"),
        ("pacs_data/pacs_data", "pacs_label/pacs_label"),
        ("PACS/Raw images/kfold", "PACS/Train val splits and h5py files pre-read"),
    ],
)
def test_layouts_with_lists(tmp_path, place, lists):
    build(tmp_path, place)
    write_lists(tmp_path / lists)
    found = open_dataset("pacs", tmp_path)
    assert found.splits == "the published lists"
    for domain in found.domains.values():
        assert names(domain, "train") == [f"{kind}/0.png" for kind in CLASSES]
        assert names(domain, "val") == [f"{kind}/1.png" for kind in CLASSES]
        assert len(domain.select("test")) == 14
    assert found.skipped == {}


def test_other_names_of_the_domains_and_classes(tmp_path):
    plant(tmp_path, *(f"{d}/{c.title()}" for d in ("Art", "Cartoon", "Photo", "Sketch") for c in CLASSES))
    assert set(open_dataset("pacs", tmp_path).domains) == set(DOMAINS)


def test_the_wrong_level_and_the_wrong_set(tmp_path):
    build(tmp_path, "PACS")
    with pytest.raises(BadFile, match=f"looks like its domain photo: pass '{tmp_path}/PACS' instead"):
        open_dataset("pacs", tmp_path / "PACS" / "photo")
    plant(tmp_path, "PACS/photo/zebra")
    with pytest.raises(BadFile, match="zebra' is none of its 7 classes"):
        open_dataset("pacs", tmp_path)


def test_the_published_images(data_root):
    if not (data_root / "pacs").is_dir():
        pytest.skip("needs PACS")
    found = open_dataset("pacs", data_root)
    assert {name: len(domain.examples) for name, domain in found.domains.items()} == {
        "art_painting": 2048,
        "cartoon": 2344,
        "photo": 1670,
        "sketch": 3929,
    }
    assert {name: len(domain.examples) for name, domain in found.domains.items()} == published_images("pacs")
    assert sum(sum(counts.values()) for counts in found.counts().values()) == 9991
    assert len(found.classes) == 7
    assert found.skipped == {}

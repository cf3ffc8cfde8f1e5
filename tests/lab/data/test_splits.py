import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Domain, DomainDataset, Example
from domainadaptor.lab.data.splits import seeded_split, with_lists
from tests.lab.data.trees import Plain


def named(counts):
    return [(f"{label}/{n:03d}.png", label) for label, count in enumerate(counts) for n in range(count)]


def val_of(examples):
    return {e.name for e in examples if e.split == "val"}


def test_a_tenth_of_each_class_is_kept():
    counts = (100, 57, 9, 2, 1)
    examples = seeded_split("photo", named(counts), 0)
    assert sorted(e.name for e in examples) == sorted(name for name, _ in named(counts))
    kept = [sum(e.split == "val" and e.label == label for e in examples) for label in range(5)]
    assert kept == [10, 6, 1, 1, 0]  # one image alone is trained on


def test_the_seed_and_the_domain_decide_and_nothing_else():
    files = named((50, 50))
    first = seeded_split("photo", files, 0)
    assert seeded_split("photo", reversed(files), 0) == first
    assert val_of(seeded_split("photo", files, 1)) != val_of(first)
    assert val_of(seeded_split("sketch", files, 0)) != val_of(first)


def test_the_draw_is_the_same_for_ever():
    """Numbers that were trained with one split must not be compared with another: it is written down here."""
    assert val_of(seeded_split("photo", named((20,)), 0)) == {"0/001.png", "0/017.png"}


def test_names_that_are_no_text():
    assert len(seeded_split("stra\udcdfe", [("a\udcff.png", 0), ("b.png", 0)], 0)) == 2


def listed(folder, train, val, classes=("a b", "é"), first_label=0):
    names = ["a b/1.png", "a b/2.png", "a b/3.png", "é/2.png"]
    examples = tuple(Example(name, classes.index(name.partition("/")[0]), "train") for name in names)
    dataset = DomainDataset("pets", classes, {"photo": Domain("photo", examples, Plain())}, "none")
    lists = {"train": train, "val": val}
    for name, text in lists.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return with_lists(dataset, {"photo": {name: name for name in lists}}, [folder], first_label)


def test_lists_are_read(tmp_path):
    train, val = "\ufeffphoto/a b/1.png 1\r\nphoto/é/2.png 2\n\n", "photo/a b/3.png 1"
    found = listed(tmp_path, train, val, first_label=1)
    assert found.domains["photo"].examples == (
        Example("a b/1.png", 0, "train"),
        Example("a b/3.png", 0, "val"),
        Example("é/2.png", 1, "train"),
    )
    assert found.skipped == {"photo/a b/2.png": "on disk, but in no published list"}


def test_an_image_in_both_lists_is_trained_on_only(tmp_path):
    train, val = "photo/a b/1.png 0\nphoto/a b/2.png 0\n", "photo/a b/2.png 0\nphoto/é/2.png 1\n"
    found = listed(tmp_path, train, val)
    splits = [(e.name, e.split) for e in found.domains["photo"].examples]
    assert splits == [("a b/1.png", "train"), ("a b/2.png", "train"), ("é/2.png", "val")]
    assert found.skipped["photo/a b/2.png"].startswith("in both published lists")


@pytest.mark.parametrize(
    ("train", "val", "said"),
    [
        ("photo/a b/1.png x\n", "", "line 1: expected 'path label'"),
        ("photo/a b/1.png 0\nphoto/a\n", "", "line 2: expected 'path label'"),
        ("photo/a b/1.png 0\nphoto/a b/1.png 1\n", "", "is é in the list and a b by its folder"),
        ("photo/a b/1.png 0\n", "photo/a b/2.png 7\n", "is of no class in the list"),
        ("photo/a b/1.png 0\nphoto/a b/2.png 0\n", "photo/a b/1.png 0\n", "not a split"),
        (b"\xff\xfe\x00", "", "Cannot read the split list"),
    ],
)
def test_wrong_lists_are_explained(tmp_path, train, val, said):
    with pytest.raises(BadFile, match=said):
        listed(tmp_path, train, val)

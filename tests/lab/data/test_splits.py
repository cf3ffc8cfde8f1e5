import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.domains import Example
from domainadaptor.lab.data.splits import read_lists, seeded_split


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


def write(folder, **lists):
    for name, text in lists.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {name: folder / name for name in lists}


def test_lists_are_read(tmp_path):
    lists = write(tmp_path, train="\ufeffphoto/a b/1.png 1\r\nphoto/é/2.png 2\n\n", val="photo/a b/3.png 1")
    found = read_lists(lists, first_label=1)
    assert found.examples == (
        Example("photo/a b/1.png", 0, "train"),
        Example("photo/a b/3.png", 0, "val"),
        Example("photo/é/2.png", 1, "train"),
    )
    assert found.twice == ()


def test_an_image_in_both_lists_is_trained_on_only(tmp_path):
    found = read_lists(write(tmp_path, train="a/1 0\na/2 0\n", val="a/2 0\na/3 0\n"), 0)
    assert [(e.name, e.split) for e in found.examples] == [("a/1", "train"), ("a/2", "train"), ("a/3", "val")]
    assert found.twice == ("a/2",)


@pytest.mark.parametrize(
    ("train", "val", "said"),
    [
        ("a/1 x\n", "a/2 0\n", "line 1: expected 'path label'"),
        ("a/1 0\na/2\n", "a/3 0\n", "line 2: expected 'path label'"),
        ("a/1 0\na/1 1\n", "a/2 0\n", "line 2: a/1 has another label"),
        ("a/1 0\n", "a/1 1\na/2 0\n", "a/1 has another label than in train"),
        ("a/1 0\na/2 0\n", "a/1 0\n", "not a split"),
    ],
)
def test_wrong_lists_are_explained(tmp_path, train, val, said):
    with pytest.raises(BadFile, match=said):
        read_lists(write(tmp_path, train=train, val=val), 0)


def test_a_list_that_is_no_text(tmp_path):
    lists = write(tmp_path, train="", val="")
    lists["train"].write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadFile, match="Cannot read the split list"):
        read_lists(lists, 0)

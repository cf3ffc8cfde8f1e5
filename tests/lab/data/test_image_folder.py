import os
import pickle
import unicodedata

import pytest
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.image_folder import FileReader, SplitFolders, for_testing, read_image_folders
from domainadaptor.lab.data.sets.folders import folders
from domainadaptor.lab.data.splits import with_lists
from tests.lab.data.trees import names, picture, plant

SPLIT = SplitFolders({"train": "train", "crossval": "val", "test": "test"}, copies=("full",))


def read(root, *domains, classes=None, **more):
    return read_image_folders("pets", {name: root / name for name in domains}, 0, classes, **more)


def test_names_of_all_kinds(tmp_path):
    plant(tmp_path, "in der Küche/große Katze", "in der Küche/猫/deep er", "photo/[dog] & co", name="bild ä {}.JPG")
    found = read(tmp_path, "in der Küche", "photo")
    assert found.classes == ("[dog] & co", "große Katze", "猫")
    assert found.counts()["in der Küche"] == {"[dog] & co": 0, "große Katze": 3, "猫": 3}
    kitchen = found.domains["in der Küche"]
    assert "猫/deep er/bild ä 0.JPG" in names(kitchen)
    assert kitchen.read("猫/deep er/bild ä 0.JPG").mode == "RGB"
    assert found.skipped == {}


def test_names_that_are_no_text(tmp_path):
    folder = os.fsencode(tmp_path) + b"/photo/d\xf6g"
    os.makedirs(folder)
    picture(tmp_path / "x.png")
    for number in b"12":
        os.link(tmp_path / "x.png", folder + b"/b\xe4" + bytes([number]) + b".png")
    (domain,) = read(tmp_path, "photo").domains.values()
    assert [domain.read(name).size for name in names(domain)] == [(6, 4)] * 2


def test_what_is_no_image_is_reported(tmp_path):
    plant(tmp_path, "photo/dog")
    dog = tmp_path / "photo" / "dog"
    (dog / ".DS_Store").write_text("x")
    (dog / "notes.txt").write_text("x")
    (dog / "empty.png").touch()
    (dog / "gone.png").symlink_to("none.png")
    (dog / "loop").symlink_to(tmp_path / "photo")
    os.mkfifo(dog / "pipe.png")
    (tmp_path / "photo" / "readme.md").write_text("x")
    (tmp_path / "photo" / ".hidden").mkdir()
    plant(tmp_path, "photo/dog/.ipynb_checkpoints")
    found = read(tmp_path, "photo")
    assert names(found.domains["photo"]) == ["dog/0.png", "dog/1.png", "dog/2.png"]
    reasons = {name.removeprefix("photo/"): why for name, why in found.skipped.items()}
    assert {name: why.partition(" (")[0] for name, why in reasons.items()} == {
        "dog/.DS_Store": "a hidden file",
        "dog/.ipynb_checkpoints": "a hidden folder",
        "dog/notes.txt": "not named like an image",
        "dog/empty.png": "an empty file",
        "dog/gone.png": "a broken link",
        "dog/loop": "a link to a folder, which is not followed",
        "dog/pipe.png": "not a regular file",
        "readme.md": "not in a class folder",
    }


def test_linked_class_folders_and_images(tmp_path):
    plant(tmp_path, "store/a")
    (tmp_path / "photo" / "cat").mkdir(parents=True)
    (tmp_path / "photo" / "dog").symlink_to(tmp_path / "store" / "a")
    (tmp_path / "photo" / "cat" / "x.png").symlink_to(tmp_path / "store" / "a" / "1.png")
    domain = read(tmp_path, "photo").domains["photo"]
    assert names(domain) == ["cat/x.png", "dog/0.png", "dog/1.png", "dog/2.png"]
    for name in names(domain):
        assert domain.read(name).size == (6, 4)


def test_damaged_images_are_left_to_the_reader(tmp_path):
    plant(tmp_path, "photo/dog")
    (tmp_path / "photo" / "dog" / "bad.png").write_bytes(b"no image")
    domain = read(tmp_path, "photo").domains["photo"]
    assert "dog/bad.png" in names(domain)
    with pytest.raises(BadFile, match="not a readable image"):
        domain.read("dog/bad.png")


def test_expected_classes_in_their_order_however_written(tmp_path):
    plant(tmp_path, "photo/Hot-Dog", "photo/1", "sketch/hot dog")
    found = read(tmp_path, "photo", "sketch", classes=("hot_dog", "cat"), aliases={"1": "cat"})
    assert found.classes == ("hot_dog", "cat")
    assert found.counts() == {"photo": {"hot_dog": 3, "cat": 3}, "sketch": {"hot_dog": 3, "cat": 0}}


def test_unknown_and_absent_classes(tmp_path):
    plant(tmp_path, "photo/dog", "photo/zebra")
    with pytest.raises(BadFile, match="zebra' is none of its 2 classes; did you mean .* available: dog, cat"):
        read(tmp_path, "photo", classes=("dog", "cat"))
    assert read(tmp_path, "photo", classes=("dog",), subset=True).counts() == {"photo": {"dog": 3}}
    with pytest.raises(BadFile, match="2 of 3 classes have no image in any of photo: cat, cow; found dog"):
        read(tmp_path, "photo", classes=("dog", "cat", "cow"), subset=True)


@pytest.mark.parametrize(("one", "other"), [("Dog", "dog"), ("café", unicodedata.normalize("NFD", "café"))])
def test_one_class_in_two_spellings(tmp_path, one, other):
    plant(tmp_path, f"photo/{one}", f"sketch/{other}")
    with pytest.raises(BadFile, match="differ only in spelling"):
        read(tmp_path, "photo", "sketch")


def test_two_classes_that_one_domain_tells_apart(tmp_path):
    plant(tmp_path, "photo/A", "photo/a", "sketch/a")
    assert read(tmp_path, "photo", "sketch").classes == ("A", "a")


def test_a_domain_without_images(tmp_path):
    plant(tmp_path, "photo/dog")
    (tmp_path / "sketch" / "dog").mkdir(parents=True)
    with pytest.raises(BadFile, match=r"no images in domain 'sketch' .*found dog/"):
        read(tmp_path, "photo", "sketch")


def test_split_folders(tmp_path):
    plant(tmp_path, "photo/train/dog", "photo/full/dog", "photo/Crossval/dog", "photo/test/cat", "photo/extra")
    (tmp_path / "photo" / "train" / "stray.png").touch()
    found = read(tmp_path, "photo", split=SPLIT)
    photo = found.domains["photo"]
    assert found.splits == "the published folders train, crossval, test"
    assert {part: names(photo, part)[0] for part in ("train", "val")} == {
        "train": "train/dog/0.png",
        "val": "Crossval/dog/0.png",
    }
    assert len(photo.examples) == len(photo.select("test")) == 9  # nothing twice
    assert [e.split for e in photo.examples if e.name.startswith("test/")] == ["test"] * 3
    assert found.skipped == {
        "photo/extra": "no part of the split",
        "photo/full": "repeats images of the other folders",
        "photo/train/stray.png": "not in a class folder",
    }


def test_split_folders_that_are_partly_there(tmp_path):
    plant(tmp_path, "photo/train/dog", "photo/crossval/dog", "photo/test/dog", "sketch/train/dog")
    with pytest.raises(BadFile, match=r"domain 'sketch' .*has train and lacks crossval, test"):
        read(tmp_path, "photo", "sketch", split=SPLIT)


def test_without_split_folders_the_seed_splits(tmp_path):
    plant(tmp_path, "photo/dog", images=10)
    found = read(tmp_path, "photo", split=SPLIT)
    assert "drawn with seed 0" in found.splits
    assert (len(found.domains["photo"].select("train")), len(found.domains["photo"].select("val"))) == (9, 1)


def listed(tmp_path, train, val, **more):
    (tmp_path / "lists").mkdir(exist_ok=True)
    for name, text in {"photo_train.txt": train, "photo_val.txt": val}.items():
        if text is not None:
            (tmp_path / "lists" / name).write_text(text)
    lists = {"photo": {"train": "photo_train.txt", "val": "photo_val.txt"}}
    return with_lists(read(tmp_path, "photo"), lists, [tmp_path / "none", tmp_path / "lists"], 0, **more)


def test_published_lists(tmp_path):
    plant(tmp_path, "photo/cat", "photo/dog")
    (tmp_path / "photo" / "dog" / "9.png").touch()
    found = listed(
        tmp_path,
        "photo/cat/0.png 0\nphoto/cat/1.png 0\nphoto/dog/7.png 1\n",
        "photo/dog/1.png 1\nphoto/cat/1.png 0\nphoto/dog/9.png 1\n",
    )
    photo = found.domains["photo"]
    assert found.splits == "the published lists"
    assert names(photo, "train") == ["cat/0.png", "cat/1.png"]
    assert names(photo, "val") == ["dog/1.png"]
    assert found.skipped == {
        "photo/dog/9.png": "an empty file",
        "photo/dog/7.png": "in the published list, but not on disk",
        "photo/cat/2.png": "on disk, but in no published list",
        "photo/dog/0.png": "on disk, but in no published list",
        "photo/dog/2.png": "on disk, but in no published list",
        "photo/cat/1.png": "in both published lists: trained on, but not validated with",
    }
    subset = listed(tmp_path, None, None, subset=True)
    assert "photo/cat/2.png" not in subset.skipped


def test_lists_that_do_not_fit(tmp_path):
    plant(tmp_path, "photo/cat", "photo/dog")
    assert "seed" in listed(tmp_path, None, None).splits
    with pytest.raises(BadFile, match="incomplete, photo_val.txt missing"):
        listed(tmp_path, "photo/cat/0.png 0\n", None)
    with pytest.raises(BadFile, match="is dog in the list and cat by its folder"):
        listed(tmp_path, "photo/cat/0.png 1\n", "photo/dog/0.png 1\n")
    with pytest.raises(BadFile, match="is of no class in the list and cat by its folder"):
        listed(tmp_path, "photo/cat/0.png 2\n", "photo/dog/0.png 1\n")
    with pytest.raises(BadFile, match="none of the 2 images in the lists of photo is on disk, such as x/0.png"):
        listed(tmp_path, "photo/x/0.png 0\n", "photo/x/1.png 1\n")


def test_all_for_testing(tmp_path):
    plant(tmp_path, "photo/dog")
    domain = for_testing(read(tmp_path, "photo")).domains["photo"]
    assert not domain.select("train")
    assert not domain.select("val")
    assert len(domain.select("test")) == 3


def test_the_stamp_changes_with_the_file(tmp_path):
    reader = FileReader(tmp_path)
    path = picture(tmp_path / "x.png")
    before = reader.stamp("x.png")
    assert reader.stamp("x.png") == before
    Image.new("RGB", (9, 9)).save(path)
    assert reader.stamp("x.png") != before
    path.unlink()
    assert reader.stamp("x.png") == "gone"
    assert pickle.loads(pickle.dumps(reader)) == reader


@pytest.mark.parametrize("suffix", [".bmp", ".ppm", ".tif"])
def test_the_mark_sees_other_pixels_in_files_of_the_same_size(tmp_path, suffix):
    reader = FileReader(tmp_path)
    path = tmp_path / f"x{suffix}"
    marks, sizes = [], []
    for color in ("red", "blue", "red"):
        Image.new("RGB", (9, 9), color).save(path)
        marks.append(reader.mark(path.name))
        sizes.append(path.stat().st_size)
    assert len(set(sizes)) == 1
    assert marks[0] == marks[2] != marks[1]
    os.utime(path, (0, 0))
    assert reader.mark(path.name) == marks[0], "the same file elsewhere is the same data"


def test_links_in_a_circle_are_skipped(tmp_path):
    for domain in ("a", "b"):
        for kind in ("x", "y"):
            (tmp_path / domain / kind).mkdir(parents=True)
            Image.new("RGB", (4, 4)).save(tmp_path / domain / kind / "1.png")
    (tmp_path / "a" / "x" / "loop.png").symlink_to("loop.png")
    (tmp_path / "a" / "circle").symlink_to("circle")
    (tmp_path / "b" / "self").symlink_to(".")
    opened = folders(tmp_path)
    assert opened.classes == ("x", "y")
    assert {name: len(domain.examples) for name, domain in opened.domains.items()} == {"a": 2, "b": 2}
    assert opened.skipped["a/x/loop.png"] == "a broken link"

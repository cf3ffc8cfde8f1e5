import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.registry import open_dataset
from tests.lab.data.trees import plant


def test_any_names(tmp_path, monkeypatch):
    root = plant(tmp_path / "Meine Bilder", "bei Nacht/große Katze", "bei Tag/große Katze", "bei Tag/犬")
    found = open_dataset("folders", root)
    assert found.name == "Meine Bilder"
    assert found.counts() == {"bei Nacht": {"große Katze": 3, "犬": 0}, "bei Tag": {"große Katze": 3, "犬": 3}}
    (root / ".git").mkdir()
    (root / "notes.txt").touch()
    monkeypatch.chdir(root)
    assert open_dataset("folders", type(root)(".")).name == "Meine Bilder"


def test_folders_of_classes_are_a_single_domain(tmp_path):
    plant(tmp_path, "photo/dog", "photo/cat")
    found = open_dataset("folders", tmp_path / "photo")
    assert found.counts() == {"photo": {"cat": 3, "dog": 3}}
    (tmp_path / "empty" / "dog").mkdir(parents=True)
    with pytest.raises(BadFile, match="no images in domain 'empty'"):
        open_dataset("folders", tmp_path / "empty")


def test_one_folder_too_high(tmp_path):
    plant(tmp_path, "pets/photo/dog", "pets/sketch/dog")
    with pytest.raises(BadFile, match=f"has no images, but dog/: .* one level too high, pass '{tmp_path}/pets'"):
        open_dataset("folders", tmp_path)


def test_folders_that_are_no_domains(tmp_path):
    plant(tmp_path, "photo/dog", "scripts")
    with pytest.raises(BadFile, match="scripts' has no class folders, but 0.png, 1.png, 2.png: .*move other"):
        open_dataset("folders", tmp_path)
    with pytest.raises(BadFile, match="No folders in .*, which has 0.png"):
        open_dataset("folders", tmp_path / "photo" / "dog")


def test_folders_between_domain_and_classes_are_the_split(tmp_path):
    root = plant(tmp_path / "pets", *(f"{d}/{part}/{kind}" for d in "ab" for part in ("Train", "val") for kind in "xy"))
    found = open_dataset("folders", root)
    assert found.counts() == {"a": {"x": 6, "y": 6}, "b": {"x": 6, "y": 6}}
    assert found.splits == "the published folders train, val"
    assert {e.name.partition("/")[0] for e in found.domain("a").select("val")} == {"val"}
    assert len(found.domain("a").select("test")) == 12
    plant(root, "c/x")
    with pytest.raises(BadFile, match=r"a' is split into Train/, val/, but .*c' has x/: expected .* everywhere"):
        open_dataset("folders", root)


def test_without_a_folder_for_validation_a_tenth_of_train_is_drawn(tmp_path):
    folders = [f"{domain}/{part}/{kind}" for domain in "ab" for part in ("train", "test") for kind in "xy"]
    root = plant(tmp_path / "pets", *folders, images=10)
    found = open_dataset("folders", root)
    for domain in found.domains.values():
        parts = {part: [e for e in domain.examples if e.split == part] for part in ("train", "val", "test")}
        assert {part: len(examples) for part, examples in parts.items()} == {"train": 18, "val": 2, "test": 20}
        assert [e.label for e in parts["val"]] == [0, 1]
        assert all(e.name.startswith("test/") == (e.split == "test") for e in domain.examples)
    assert found.splits == (
        "the published folders test, train; of the images to train on, a tenth of each class of each domain for "
        "validation, drawn with seed 0"
    )
    drawn = {tuple(open_dataset("folders", root, seed=seed).domain("a").select("val")) for seed in range(4)}
    assert len(drawn) > 1


def test_a_part_of_a_split_that_is_not_known(tmp_path):
    parts = ("train", "crossval", "test", "full")
    root = plant(
        tmp_path / "VLCS", *(f"{d}/{part}/{kind}" for d in ("CALTECH", "SUN") for part in parts for kind in "01")
    )
    said = "crossval' has no images, but 0/, 1/: .*for a published split, only train, .* may be between"
    with pytest.raises(BadFile, match=said):
        open_dataset("folders", root)


def test_classes_may_be_called_like_parts_of_a_split(tmp_path):
    root = plant(tmp_path / "words", "a/train", "a/bus", "b/train", "b/bus")
    assert open_dataset("folders", root).classes == ("bus", "train")


def test_a_folder_that_is_empty_everywhere_is_no_class(tmp_path):
    root = plant(tmp_path / "pets", "a/cat", "a/dog", "b/cat", "b/dog")
    (root / "a" / "cow").mkdir()
    found = open_dataset("folders", root)
    assert found.classes == ("cat", "dog")
    assert found.skipped == {"a/cow": "a folder without images in any domain, so no class"}

import pytest

from domainadaptor.data.open import open_dataset
from domainadaptor.errors import BadFile
from tests.data.trees import plant


def test_any_names(tmp_path, monkeypatch):
    root = plant(tmp_path / "Meine Bilder", "bei Nacht/große Katze", "bei Tag/große Katze", "bei Tag/犬")
    found = open_dataset("folders", root)
    assert found.name == "Meine Bilder"
    assert found.counts() == {"bei Nacht": {"große Katze": 3, "犬": 0}, "bei Tag": {"große Katze": 3, "犬": 3}}
    (root / ".git").mkdir()
    (root / "notes.txt").touch()
    monkeypatch.chdir(root)
    assert open_dataset("folders", type(root)(".")).name == "Meine Bilder"


def test_one_folder_too_deep(tmp_path):
    plant(tmp_path, "photo/dog", "photo/cat")
    with pytest.raises(BadFile, match=r"the 2 folders of .* \(cat, dog\) have no folders in them.*Are they classes\?"):
        open_dataset("folders", tmp_path / "photo")


def test_one_folder_too_high(tmp_path):
    plant(tmp_path, "pets/photo/dog", "pets/sketch/dog")
    with pytest.raises(BadFile, match=f"one folder too high: .*has no images, but dog/; .*Give '{tmp_path}/pets'"):
        open_dataset("folders", tmp_path)


def test_folders_that_are_no_domains(tmp_path):
    plant(tmp_path, "photo/dog", "scripts")
    with pytest.raises(BadFile, match="scripts' has no class folders, but 0.png, 1.png, 2.png: .*move away"):
        open_dataset("folders", tmp_path)
    with pytest.raises(BadFile, match="no folders in .*, which has 0.png"):
        open_dataset("folders", tmp_path / "photo" / "dog")

from pathlib import Path

import pytest

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.locate import data_root, descend, find_domains, fold, folders_in, listing, some
from tests.lab.data.trees import plant

DOMAINS = {"photo": ("photo",), "real_world": ("Real World", "real")}
CLASSES = ("dog", "cat")


def find(root):
    return find_domains("Pets", root, ("pets", "pets/images"), DOMAINS, CLASSES)


@pytest.mark.parametrize("one", ["Real World", "RealWorld", "real_world", "REAL-WORLD"])
def test_names_may_be_written_differently(tmp_path, one):
    plant(tmp_path, f"Pets/{one}/dog", "Pets/Photo/dog")
    assert find(tmp_path) == {"photo": tmp_path / "Pets/Photo", "real_world": tmp_path / f"Pets/{one}"}
    assert fold(one) == "realworld"
    assert fold("e\u0301") == fold("é") == fold("É")


def test_the_root_the_data_set_and_below(tmp_path):
    plant(tmp_path, "pets/images/photo/dog", "pets/images/real/dog")
    for root in (tmp_path, tmp_path / "pets" / "images"):
        assert set(find(root)) == set(DOMAINS)
    assert descend(tmp_path, "PETS/images") == tmp_path / "pets" / "images"
    assert descend(tmp_path, "pets/none") is None


def test_what_is_missing_is_explained(tmp_path):
    plant(tmp_path, "pets/photo/dog", "other")
    with pytest.raises(BadFile) as caught:
        find(tmp_path)
    said = str(caught.value)
    assert f"No Pets in {str(tmp_path)!r} or below it in 'pets', 'pets/images'" in said
    assert f"The closest match is {str(tmp_path / 'pets')!r}: it has photo/, and lacks real_world" in said
    assert "Expected 2 domain folders: photo (photo); real_world (Real World or real)" in said
    assert "each with 2 class folders: dog, cat" in said


def test_the_deepest_of_equal_places_is_nearest(tmp_path):
    plant(tmp_path, "pets/images/fotos/dog")
    with pytest.raises(
        BadFile, match=f"The closest match is '{tmp_path}/pets/images': it has fotos/, and lacks photo, real_world"
    ):
        find(tmp_path)


@pytest.mark.parametrize(
    ("given", "hint"),
    [("pets/photo", "its domain photo"), ("pets/photo/dog", "a folder of its domain photo")],
)
def test_one_domain_too_deep(tmp_path, given, hint):
    plant(tmp_path, "pets/photo/dog", "pets/real/dog")
    with pytest.raises(BadFile, match=f"This looks like {hint}: pass '{tmp_path}/pets' instead"):
        find(tmp_path / given)


def test_folders_that_are_classes(tmp_path):
    plant(tmp_path, "mine/dog", "mine/cat")
    with pytest.raises(BadFile, match=f"Its folders are classes.*pass '{tmp_path}' instead"):
        find(tmp_path / "mine")


def test_the_root(tmp_path, monkeypatch):
    monkeypatch.delenv("DOMAINADAPTOR_DATA", raising=False)
    with pytest.raises(BadFile, match="No data directory: pass --root or set DOMAINADAPTOR_DATA"):
        data_root(None)
    with pytest.raises(BadFile, match="No folder '"):
        data_root(tmp_path / "none")
    monkeypatch.setenv("DOMAINADAPTOR_DATA", str(tmp_path))
    assert data_root(None) == tmp_path
    (tmp_path / "other").mkdir()
    assert data_root(tmp_path / "other") == tmp_path / "other"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root(Path("~/other")) == tmp_path / "other"


def test_hidden_folders_and_links(tmp_path):
    plant(tmp_path, ".git", "__MACOSX", "b")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "gone").symlink_to(tmp_path / "none")
    assert [folder.name for folder in folders_in(tmp_path)] == ["a", "b"]


def test_long_listings_are_cut(tmp_path):
    assert some([str(n) for n in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    assert listing(tmp_path) == "nothing"
    (tmp_path / "file").touch()
    (tmp_path / "zoo").mkdir()
    assert listing(tmp_path) == "zoo/, file"

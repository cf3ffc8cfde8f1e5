import pytest

from domainadaptor.lab.data import integrity as damage
from domainadaptor.lab.data.image_folder import read_image_folders
from domainadaptor.lab.data.integrity import unreadable_images
from tests.lab.data.trees import picture, plain_domain, plant


@pytest.mark.parametrize("decode", [False, True])
def test_all_images_are_looked_at_in_parts(monkeypatch, decode):
    monkeypatch.setattr(damage, "_CHUNK", 4)
    steps = []
    found = unreadable_images(plain_domain(count=10, broken=(0, 9)), decode, steps.append)
    assert found == {"000": "000 is broken", "009": "009 is broken"}
    assert steps == [4, 4, 2]


def test_headers_and_whole_files(tmp_path):
    plant(tmp_path, "photo/dog")
    whole = picture(tmp_path / "photo/dog/cut.png", (64, 64)).read_bytes()
    (tmp_path / "photo/dog/cut.png").write_bytes(whole[:60])
    (tmp_path / "photo/dog/page.png").write_text("<html>")
    domain = read_image_folders("pets", {"photo": tmp_path / "photo"}, 0).domains["photo"]
    assert set(unreadable_images(domain, False, lambda _: None)) == {"dog/page.png"}
    assert set(unreadable_images(domain, True, lambda _: None)) == {"dog/cut.png", "dog/page.png"}

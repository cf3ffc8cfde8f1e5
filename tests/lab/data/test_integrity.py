from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.image_folder import read_image_folders
from domainadaptor.lab.data.integrity import unreadable_images
from tests.lab.data.trees import picture, plain_domain, plant


def test_all_images_are_checked():
    steps = []
    data = DomainDataset("mine", ("x", "y", "z"), {"only": plain_domain("only", 21, broken=(0, 9))}, "")
    found = unreadable_images(data, steps.append)
    assert found == {"only/000": "000 is broken", "only/009": "009 is broken"}
    assert steps == list(range(1, 22))


def test_headers_and_pixels(tmp_path):
    plant(tmp_path, "photo/dog")
    whole = picture(tmp_path / "photo/dog/cut.png", (64, 64)).read_bytes()
    (tmp_path / "photo/dog/cut.png").write_bytes(whole[:60])
    (tmp_path / "photo/dog/page.png").write_text("<html>")
    data = read_image_folders("pets", {"photo": tmp_path / "photo"}, 0)
    assert set(unreadable_images(data, lambda _: None)) == {"photo/dog/cut.png", "photo/dog/page.png"}

import json

import pytest
from PIL import Image

from domainadaptor.lab.data.registry import datasets, published_images
from tests.lab.data.trees import plant

# A line of a table, without the lines between its cells.


def cells(text, first):
    rows = [[cell.strip() for cell in line.strip("│┃ \n").replace("┃", "│").split("│")] for line in text.splitlines()]
    return next(row[1:] for row in rows if row[0] == first)


@pytest.fixture
def own(tmp_path):
    root = plant(tmp_path / "meine Bilder", "bei Nacht/[große] Katze", "bei Tag/[große] Katze", "bei Tag/犬", images=10)
    (root / "bei Tag" / "犬" / "notes.txt").touch()
    return root


def test_list(program):
    done = program("data", "list")
    assert done.returncode == 0
    assert all(name in done.stdout for name in datasets())
    assert "severity=5" in done.stdout
    listed = json.loads(program("data", "list", "--json").stdout)
    assert listed["cifar10-c"]["options"] == {"severity": 5, "jpeg": False, "seed": 0}
    assert listed["vlcs"]["is"].startswith("VLCS")


def test_every_data_set_is_described(program):
    listed = json.loads(program("data", "list", "--json").stdout)
    for name, entry in listed.items():
        assert entry["is"].endswith("."), name
        assert entry["options"].get("seed", 0) == 0


def test_describe(program, own):
    done = program("data", "describe", "folders", "--root", own)
    assert done.returncode == 0
    assert "meine Bilder: 2 domains, 2 classes, 30 images" in done.stdout
    assert cells(done.stdout, "class") == ["bei Nacht", "bei Tag", "all"]
    assert cells(done.stdout, "[große] Katze") == ["10", "10", "20"]
    assert cells(done.stdout, "犬") == ["0", "10", "10"]
    assert cells(done.stdout, "all") == ["10", "20", "30"]
    assert cells(done.stdout, "bei Tag") == ["18", "2", "0", "20"]
    assert "Split: a tenth of each class of each domain for validation, drawn with seed 0." in done.stdout
    assert "1 file skipped:\n  bei Tag/犬/notes.txt: not named like an image" in done.stderr
    assert "seed 3" in program("data", "describe", "folders", "--root", own, "--seed", 3).stdout


def test_fewer_images_than_were_published_are_noted(program, tmp_path, own):
    domains = ("art_painting", "cartoon", "photo", "sketch")
    kinds = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    plant(tmp_path / "pacs", *(f"{domain}/{kind}" for domain in domains for kind in kinds), images=2)
    note = "numbers of images differ from the published pacs: art_painting 14 of 2,048, cartoon 14 of 2,344"
    assert note in program("data", "describe", "pacs", "--root", tmp_path).stderr
    assert program("data", "check", "pacs", "--root", tmp_path).returncode == 3
    found = json.loads(program("data", "describe", "pacs", "--root", tmp_path, "--json").stdout)
    assert found["differs_from_published"].startswith(note)
    assert "published" not in program("data", "describe", "folders", "--root", own).stderr


def test_describe_as_json(program, own):
    done = program("data", "describe", "folders", "--root", own, "--json")
    found = json.loads(done.stdout)
    assert found["classes"] == ["[große] Katze", "犬"]
    day = found["domains"]["bei Tag"]
    assert (day["images"], day["parts"], day["tested"]) == (20, {"train": 18, "val": 2}, "all")
    assert day["classes"] == {"[große] Katze": 10, "犬": 10}
    assert len(found["fingerprint"]) == 12
    assert list(found["skipped"]) == ["bei Tag/犬/notes.txt"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    "name", ["pacs", "vlcs", "office-home", "mini-domainnet", "cifar10", "cifar10-c", "imagenet", "imagenet-c"]
)
def test_get_says_where_a_data_set_is_and_what_to_expect(program, name):
    done = program("data", "get", name, "--root", "my data")
    assert done.returncode == 0, done.stderr
    assert f"{name}: http" in done.stdout
    assert "Unpack" in done.stdout
    assert "below 'my data'" in done.stdout
    total = sum(published_images(name).values())
    assert f"Expected: {total:,} images: " in done.stdout
    assert f"domainadaptor data check {name} --root 'my data'" in done.stdout


def test_your_own_folders_are_not_published(program):
    done = program("data", "get", "folders")
    assert done.returncode == 1
    assert "folders is not a published data set" in done.stderr


def test_check_decodes_every_image(program, own):
    done = program("data", "check", "folders", "--root", own)
    assert done.returncode == 0
    assert "All images can be decoded." in done.stdout
    folder = own / "bei Tag" / "犬"
    for number in range(12):
        (folder / f"bad{number:02d}.png").write_bytes(b"no image")
    Image.new("RGB", (64, 64)).save(folder / "cut.png")
    (folder / "cut.png").write_bytes((folder / "cut.png").read_bytes()[:60])
    done = program("data", "check", "folders", "--root", own)
    assert done.returncode == 3
    assert "13 files cannot be read:\n  bei Tag/犬/bad00.png: not a readable image" in done.stderr
    assert "bad09.png" in done.stderr
    assert "bad10.png" not in done.stderr
    assert "and 3 more; --json lists them all" in done.stderr
    whole = program("data", "check", "folders", "--root", own, "--json")
    assert whole.returncode == 3
    assert len(json.loads(whole.stdout)["unreadable"]) == 13


def test_options_of_the_data_set(program, tmp_path):
    root = plant(tmp_path / "mine", "dog", "cat")
    done = program(
        "data", "describe", "corrupted", "--root", root, "--data-option", "severity=2", "--data-option", "size=16"
    )
    assert done.returncode == 0
    assert "mine-corrupted-16px-2: 16 domains, 2 classes, 96 images" in done.stdout
    assert cells(done.stdout, "class") == ["all"]  # of 16 domains
    assert cells(done.stdout, "dog") == ["48"]
    assert "none to train on" in done.stdout
    wrong = program("data", "describe", "corrupted", "--root", root, "--data-option", "severety=2")
    assert wrong.returncode == 1
    assert "did you mean 'severity'" in wrong.stderr
    wrong = program("data", "describe", "corrupted", "--root", root, "--data-option", "severity")
    assert "--data-option 'severity': expected name=value" in wrong.stderr
    trained = program("train", "corrupted", "--root", root, "--data-option", "severity=9")
    assert trained.returncode == 1
    assert "severity=9" in trained.stderr


def test_what_is_wrong_is_said(program, tmp_path):
    for arguments, said in (
        (("paks",), "did you mean 'pacs'"),
        (("pacs", "--root", tmp_path), "No PACS in"),
    ):
        done = program("data", "describe", *arguments)
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_a_wide_set_fits_the_terminal(program, tmp_path):
    root = plant(tmp_path / "wide", *(f"a domain with a long name {n}/dog" for n in range(9)), images=2)
    plant(tmp_path / "wide", "other/cat")
    done = program("data", "describe", "folders", "--root", root)
    assert all(len(line) <= 100 for line in done.stdout.splitlines() if line[:1] in "┏┃│└")
    assert "…" not in done.stdout

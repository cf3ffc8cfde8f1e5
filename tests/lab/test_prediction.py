import csv
import os

import pytest
import torch
from PIL import Image
from torchvision import transforms

import domainadaptor as da
from domainadaptor.errors import BadFile
from domainadaptor.lab.prediction import (
    BatchPredictor,
    FileList,
    FilePrediction,
    PredictionJob,
    predict_folder,
    write_table,
)
from tests.conftest import GoldenNet, stir

NAMES = list("abcdefg")
TRANSFORM = transforms.Compose([transforms.Resize((12, 12)), transforms.ToTensor()])


def run(folder, adaptor=None, exclude=(), **options):
    defaults = {"batch_size": 4, "seed": 0}
    adaptor = adaptor or da.adapt(stir(GoldenNet()), "domainadaptor-t")
    predictor = BatchPredictor(adaptor, TRANSFORM, torch.device("cpu"), NAMES)
    progress = options.pop("progress", lambda done, total: None)
    return predict_folder(PredictionJob(predictor, FileList.of(folder, exclude), **{**defaults, **options}), progress)


def predicted(found):
    return [row for row in found.rows if not row.skipped]


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "images"
    (root / "sub é").mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    for at in range(11):
        pixels = (torch.rand(16, 16, 3, generator=generator) * 255).byte().numpy()
        Image.fromarray(pixels).save(root / ("sub é" if at % 2 else ".") / f"{at:02}.png")
    (root / "05x.png").write_bytes(b"broken")
    (root / "notes.txt").write_text("hello")
    return root


def test_every_file_has_a_row_in_file_order(folder):
    found = run(folder)
    files = [row.file for row in found.rows]
    assert len(files) == 13
    assert files == sorted(files, key=lambda name: name.split("/"))
    assert [row.file for row in found.rows if row.skipped] == ["05x.png", "notes.txt"]
    assert [row.file for row in found.rows if row.is_broken_image] == ["05x.png"]
    assert found.predicted == 11


def test_rows_hold_what_the_network_says_of_that_file(folder):
    torch.manual_seed(0)
    net = stir(GoldenNet())
    found = run(folder, da.adapt(net, "source"))
    for row in predicted(found):
        image = TRANSFORM(Image.open(folder / row.file).convert("RGB"))
        confidence, best = net(image[None]).detach().softmax(1).max(1)
        assert row.source_prediction == row.adapted_prediction == NAMES[int(best)]
        assert row.source_confidence == pytest.approx(float(confidence), abs=1e-5)


def test_batches_are_even_and_shuffled_by_the_seed(folder):
    class Spy(da.StepAdaptor):
        sizes: list = []

        def adapt(self, images):
            self.sizes.append(len(images))
            return super().adapt(images)

    run(folder, Spy(stir(GoldenNet())))
    assert sum(Spy.sizes) == 11
    assert sorted(Spy.sizes) == [3, 4, 4]
    adaptor = da.adapt(stir(GoldenNet()), "adabn")
    one, again, other = (run(folder, adaptor, seed=seed) for seed in (0, 0, 1))
    assert one == again
    assert [r.adapted_confidence for r in one.rows] != [r.adapted_confidence for r in other.rows]
    assert [r.source_confidence for r in predicted(one)] == pytest.approx(
        [r.source_confidence for r in predicted(other)], abs=1e-5
    )


def test_the_table_is_written_whole_or_not_at_all(folder, tmp_path):
    found = run(folder)
    write_table(found.rows, tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["file"] for row in rows] == [row.file for row in found.rows]
    assert rows[-1]["file"] == "sub é/09.png"
    assert [r["skipped"] != "" for r in rows] == [bool(r.skipped) for r in found.rows]
    for place in (tmp_path / "none" / "out.csv", folder):
        with pytest.raises(BadFile, match="choose another place"):
            write_table(found.rows, place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "out.csv"]


def test_names_that_are_no_text_are_written_with_escapes(folder, tmp_path):
    os.rename(folder / "00.png", os.fsencode(folder) + b"/\xff\xfe.png")
    write_table(run(folder).rows, tmp_path / "out.csv")
    assert "\\udcff\\udcfe.png" in (tmp_path / "out.csv").read_text(encoding="utf-8")


def test_empty_folders_are_explained(tmp_path):
    with pytest.raises(BadFile, match="no files"):
        run(tmp_path)


def test_a_single_image_is_predicted_and_circular_links_are_skipped(folder, tmp_path):
    (folder / "loop.png").symlink_to(folder / "loop.png")
    found = run(folder, exclude=[folder / "loop.png"])
    assert "loop.png" not in [row.file for row in found.rows]
    found = run(folder)
    assert next(row for row in found.rows if row.file == "loop.png").skipped == "not a regular file"
    (row,) = run(folder / "00.png").rows
    assert (row.file, row.skipped) == ("00.png", "")
    assert row.source_prediction


def test_names_of_files_are_no_formulas_in_the_table(tmp_path):
    rows = (FilePrediction("=cmd.png", "@a", 0.5, "-b", 0.25), FilePrediction("+1.txt", skipped="not an image"))
    write_table(rows, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert first == {
        "file": "'=cmd.png", "source_prediction": "'@a", "source_confidence": "0.5", "adapted_prediction": "'-b",
        "adapted_confidence": "0.25", "skipped": "",
    }  # fmt: skip
    assert second["file"] == "'+1.txt"

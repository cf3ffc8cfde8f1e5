import numpy as np
import pytest
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.corruptions import CORRUPTIONS, corrupt
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.registry import open_dataset
from tests.lab.data.trees import names, plant


def test_computed_from_crops_of_the_validation_images(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (300, 260, 3), dtype=np.uint8)
    plant(tmp_path / "imagenet" / "val", "7", images=0)
    Image.fromarray(pixels).save(tmp_path / "imagenet" / "val" / "7" / "a.png")
    found = open_dataset("imagenet-c", tmp_path, severity=4, seed=5)
    assert (found.name, tuple(found.domains)) == ("imagenet-c-4", ("clean", *CORRUPTIONS))
    clean = Preprocessing(224, 256).fit(Image.fromarray(pixels))
    assert found.domains["clean"].read("7/a.png").tobytes() == clean.tobytes()
    assert found.domains["contrast"].read("7/a.png").tobytes() == corrupt(clean, "contrast", 4).tobytes()  # no noise
    assert {e.label for domain in found.domains.values() for e in domain.examples} == {7}


@pytest.mark.parametrize("grouped", [False, True])
def test_published_files_are_preferred(tmp_path, grouped):
    groups = dict.fromkeys(CORRUPTIONS, "")
    if grouped:
        groups = {name: ("noise", "blur", "weather", "digital")[at // 4] + "/" for at, name in enumerate(CORRUPTIONS)}
    plant(tmp_path / "ImageNet-C", *(f"{group}{name}/3/n01484850" for name, group in groups.items()), images=2)
    found = open_dataset("imagenet-c", tmp_path)
    assert tuple(found.domains) == CORRUPTIONS
    assert found.splits.endswith("the published files")
    assert [(e.name, e.label) for e in found.domains["fog"].examples] == [
        ("n01484850/0.png", 2),
        ("n01484850/1.png", 2),
    ]
    plant(tmp_path / "imagenet" / "val", "2", images=1)
    assert names(open_dataset("imagenet-c", tmp_path).domains["clean"]) == ["2/0.png"]


def test_nothing_there(tmp_path):
    with pytest.raises(BadFile, match="No ImageNet-C .* expected ImageNet-C/<corruption>/2/<class>/; or ImageNet's"):
        open_dataset("imagenet-c", tmp_path, severity=2)


def test_incomplete_files_are_an_error(tmp_path):
    plant(tmp_path / "ImageNet-C", "fog/3/0", "snow/3/0")
    with pytest.raises(BadFile, match="incomplete: no folder gaussian_noise, .* with severity 3"):
        open_dataset("imagenet-c", tmp_path)

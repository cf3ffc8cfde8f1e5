import json

import pytest
import torch
from PIL import Image

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.preprocessing import Preprocessing, squashed
from domainadaptor.lab.networks.inputs import InputOptions, read_classes, read_config

USUAL = Preprocessing(224, 256)
COLORS = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}


@pytest.mark.parametrize(
    ("given", "size", "resize", "squash"),
    [
        ({}, 224, 256, False),
        ({"size": 96}, 96, 110, False),
        ({"size": 96, "resize": 100}, 96, 100, False),
        ({"resize": "250"}, 224, 250, False),
        ({"size": 96, "crop_pct": 0.9}, 96, 106, False),
        ({"size": 96, "resize": "squash"}, 96, 96, True),
        ({"size": 64, "resize": "crop"}, 64, 73, False),
    ],
)
def test_sizes(given, size, resize, squash):
    own = InputOptions(**given).apply_to(USUAL)
    assert (own.size, own.resize, own.squash) == (size, resize, squash)


def test_resizing_by_pixels_keeps_the_shape_where_a_network_usually_squashes():
    own = InputOptions(resize=110, size=96).apply_to(squashed(224))
    assert own == Preprocessing(96, 110)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"resize": "stretch"}, "available: crop, squash"),
        ({"resize": 0}, "resize"),
        ({"size": 0}, "size"),
        ({"std": (0, 1, 1)}, "std"),
        ({"mean": (0.5, 0.5)}, "expected three numbers"),
        ({"crop_pct": 1.5}, "crop_pct"),
        ({"crop_pct": 0.9, "resize": 110}, "pass one of them"),
    ],
)
def test_wrong_values_are_refused(wrong, hint):
    with pytest.raises(BadOption, match=hint):
        InputOptions(**wrong)


def test_a_crop_larger_than_the_image_is_refused():
    with pytest.raises(BadOption, match="a resize of at least that, got 128 and 110"):
        InputOptions(resize=110, size=128).apply_to(USUAL)


def test_options_are_recorded_and_written_as_flags():
    given = InputOptions(crop_pct=0.9, mean=(0.5, 0.5, 0.5), classes=("cat", "dog"), file="names.txt")
    assert given.settings() == {"crop_pct": 0.9, "mean": [0.5, 0.5, 0.5], "classes": ["cat", "dog"]}
    expected = ["--crop-pct", "0.9", "--mean", "0.5", "0.5", "0.5", "--classes", "names.txt"]
    assert given.flags() == expected


# As the image processors of transformers resize and crop.
PROCESSORS = {
    "ViT": {"size": {"height": 40, "width": 40}, "resample": 2},
    "ViT, older": {"size": 40, "resample": 2},
    "DeiT": {"size": {"height": 48, "width": 48}, "do_center_crop": True, "crop_size": {"height": 40, "width": 40}},
    "CLIP": {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}},
    "Bit, older": {"size": 48, "do_center_crop": True, "crop_size": 32, "resample": 3},
    "ConvNext": {"size": {"shortest_edge": 42}, "crop_pct": 0.875, "resample": 3},
    "ConvNext, large": {"size": {"shortest_edge": 384}, "crop_pct": 1.0, "resample": 3},
}
SEEN = {  # size, resize, squash
    "ViT": (40, 40, True),
    "ViT, older": (40, 40, True),
    "DeiT": (40, 48, True),
    "CLIP": (32, 40, False),
    "Bit, older": (32, 48, False),
    "ConvNext": (42, 48, False),
    "ConvNext, large": (384, 384, True),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_preprocessing_of_hugging_face(tmp_path, name):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[name] | COLORS))
    own = read_config(tmp_path).preprocessing
    assert (own.size, own.resize, own.squash) == SEEN[name]
    assert (own.mean, own.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


@pytest.mark.parametrize(
    ("kind", "name"),
    [("ViTImageProcessor", "ViT"), ("ConvNextImageProcessor", "ConvNext"), ("CLIPImageProcessor", "CLIP")],
)
def test_images_are_prepared_as_transformers_prepares_them(tmp_path, kind, name):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[name] | COLORS))
    pixels = (torch.arange(60 * 80 * 3).reshape(60, 80, 3) % 251).to(torch.uint8)
    image = Image.fromarray(pixels.numpy()).resize((160, 120))
    theirs = getattr(transformers, kind)(**PROCESSORS[name], **COLORS)(image, return_tensors="pt").pixel_values[0]
    ours = read_config(tmp_path).preprocessing.transform()(image)
    assert (theirs - ours).abs().mean() < 0.02  # other implementations of antialiased resizing


def test_class_names_of_config_files(tmp_path):
    for content, classes in (
        ({"id2label": {"1": "dog", "0": "cat", "10": "owl"}}, ("cat", "dog", "owl")),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, ()),
        ({"architecture": "resnet18", "pretrained_cfg": {"crop_pct": 0.9}, "label_names": ["a", "b"]}, ("a", "b")),
        ({"unrelated": 1}, ()),
    ):
        (tmp_path / "config.json").write_text(json.dumps(content))
        assert read_config(tmp_path).classes == classes
    (tmp_path / "config.json").write_text("// settings of another program")
    assert read_config(tmp_path).preprocessing is None


@pytest.mark.parametrize(
    "config", [{"size": {"height": 30, "width": 40}}, {"rescale_factor": 1}, {"size": "large"}, {"image_mean": "x"}]
)
def test_preprocessing_that_is_not_supported_is_refused(tmp_path, config):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(COLORS | config))
    with pytest.raises(BadFile, match="Config files in"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("c.txt", "cat\ndog\n\n bird \n", ["cat", "dog", "bird"]), ("c.json", '["cat", "dog"]', ["cat", "dog"])],
)
def test_class_names(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    assert read_classes(tmp_path / name) == expected


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("c.txt", "cat", "two or more"),
        ("c.txt", "cat\ncat\ndog", "'cat'"),
        ("c.json", '{"a": 1}', "JSON list"),
        ("c.json", "[", "Cannot read"),
    ],
)
def test_wrong_class_names_are_explained(tmp_path, name, text, hint):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadFile, match=hint):
        read_classes(tmp_path / name)
    with pytest.raises(BadFile, match="Cannot read"):
        read_classes(tmp_path / "none.txt")

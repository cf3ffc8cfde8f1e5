import pytest
import torchvision

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.registry import open_dataset
from domainadaptor.lab.data.sets.imagenet import imagenet_classes
from tests.lab.data.trees import plant


@pytest.mark.parametrize(
    "folders",
    [
        ("0000", "0002", "0999"),
        ("0", "2", "999"),
        ("n01440764", "n01484850", "n15075141"),
        ("tench", "great_white_shark", "Toilet Tissue"),
    ],
)
@pytest.mark.parametrize("place", ["imagenet/val", "ILSVRC2012/val", "val", ""])
def test_folders_by_index_wordnet_id_or_name(tmp_path, folders, place):
    plant(tmp_path / place, *folders, images=2)
    found = open_dataset("imagenet", tmp_path)
    assert found.classes == tuple(torchvision.models.ResNet18_Weights.DEFAULT.meta["categories"])
    examples = found.domains["clean"].examples
    assert {(example.name.split("/")[0], example.label) for example in examples} == set(
        zip(folders, (0, 2, 999), strict=True)
    )
    assert {example.split for example in examples} == {"test"}


def test_wordnet_ids_in_the_order_of_the_outputs():
    from timm.data import ImageNetInfo

    ids = ImageNetInfo().label_names()
    assert ids == sorted(ids)  # that order is published networks' order of outputs
    assert len(set(imagenet_classes())) == len(ids) == 1000


def test_unknown_folders_are_named(tmp_path):
    plant(tmp_path / "val", "0", "1000", "nothing")
    with pytest.raises(BadFile, match=r"1000, nothing: expected folders named by a WordNet id such as n01440764"):
        open_dataset("imagenet", tmp_path)


def test_nothing_there(tmp_path):
    plant(tmp_path, "images")
    with pytest.raises(BadFile, match=r"No ImageNet in .* which has images/.*: expected imagenet/val/<class>/"):
        open_dataset("imagenet", tmp_path)

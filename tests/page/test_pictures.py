"""Images in bounded memory, their classes, and what the network gets."""

import io

import pytest
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.corruptions import corrupt
from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.data.seeds import derived_seed, name_seed
from domainadaptor.page.pictures import ImageStore, own_pictures, sample_pictures
from tests.page.pictures import label, picture, pixels


def test_the_oldest_images_make_room():
    files = [picture(at) for at in range(4)]
    store = ImageStore(limit=sum(map(len, files[:3])) + 1)
    keys = [store.add(data) for data in files[:3]]
    assert store.add(files[0]) == keys[0]  # now the newest
    store.add(files[3])
    assert store.find({"a": keys[0], "b": keys[2]}).files == {"a": files[0], "b": files[2]}
    with pytest.raises(BadFile, match="no longer in memory"):
        store.find({"b": keys[1]})


@pytest.mark.parametrize("data", [b"", b"text", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_image_is_not_kept(data):
    with pytest.raises(BadFile, match="not a readable image"):
        ImageStore().add(data)


def test_images_of_too_many_pixels_are_not_kept():
    file = io.BytesIO()
    Image.new("1", (10_000, 5_001)).save(file, "PNG")
    with pytest.raises(BadFile, match="at most 50 million"):
        ImageStore().add(file.getvalue())


def test_the_folder_of_an_image_is_its_class_if_the_network_knows_it():
    store = ImageStore()
    key = store.add(picture())
    names = ["all/Great-Dane/1.png", "all/cat/2.png", "3.png", "cat/new/4.png"]
    own = own_pictures(store.find(dict.fromkeys(names, key)))
    assert own.labels(["great dane", "cat"]) == ["great dane", "cat", "", ""]
    assert sample_pictures("pen").labels([str(digit) for digit in range(10)])[:9] == [label(at) for at in range(9)]


@pytest.mark.parametrize(("size", "constants"), [(20, "cifar"), (96, "imagenet")])
def test_images_are_fitted_and_then_corrupted(size, constants):
    store, preprocessing = ImageStore(), squashed(size)
    own = own_pictures(store.find({"a.png": store.add(picture())}))
    assert own.fitted(preprocessing, None, 3)("a.png") == preprocessing.fit(pixels(picture()))
    seed = derived_seed(0, 4, name_seed("fog"), name_seed("a.png"))
    expected = corrupt(preprocessing.fit(pixels(picture())), "fog", 4, constants=constants, seed=seed)
    assert own.fitted(preprocessing, "fog", 4)("a.png") == expected

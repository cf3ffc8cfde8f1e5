"""MiniDomainNet: 126 classes of DomainNet in four styles, 140,006 images. Peng et al., ICCV 2019; Zhou et al., 2021."""

from dataclasses import replace
from pathlib import Path

from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.image_folder import read_image_folders
from domainadaptor.lab.data.locate import data_root, find_domains
from domainadaptor.lab.data.sets import SplitSeed
from domainadaptor.lab.data.splits import with_lists

__all__ = ["mini_domainnet"]

_NAMES = """
aircraft_carrier alarm_clock ant anvil asparagus axe banana basket bathtub bear bee bird blackberry blueberry
bottlecap broccoli bus butterfly cactus cake calculator camel camera candle cannon canoe carrot castle cat
ceiling_fan cello cell_phone chair chandelier coffee_cup compass computer cow crab crocodile cruise_ship dog dolphin
dragon drums duck dumbbell elephant eyeglasses feather fence fish flamingo flower foot fork frog giraffe goatee
grapes guitar hammer helicopter helmet horse kangaroo lantern laptop leaf lion lipstick lobster microphone monkey
mosquito mouse mug mushroom onion panda peanut pear peas pencil penguin pig pillow pineapple potato power_outlet
purse rabbit raccoon rhinoceros rifle saxophone screwdriver sea_turtle see_saw sheep shoe skateboard snake speedboat
spider squirrel strawberry streetlight string_bean submarine swan table teapot teddy-bear television
The_Eiffel_Tower The_Great_Wall_of_China tiger toe train truck umbrella vase watermelon whale zebra
"""
_CLASSES = tuple(_NAMES.split())
_DOMAINS = {name: (name,) for name in ("clipart", "painting", "real", "sketch")}
IMAGES = {"clipart": 18_703, "painting": 31_202, "real": 65_609, "sketch": 24_492}
SOURCE = (
    "http://ai.bu.edu/M3SDA, the cleaned version. Unpack the domains clipart, painting, real and sketch as "
    "DomainNet/<domain>/<class>/. The lists are splits_mini.zip of https://github.com/KaiyangZhou/Dassl.pytorch "
    "(DATASETS.md, miniDomainNet): unpack them as DomainNet/splits_mini/."
)
# The names of DomainNet's folder in Dassl, DomainBed and the authors' program differ only in spelling.
_PLACES = ("DomainNet", "MiniDomainNet", "DomainNet-126")


def mini_domainnet(root: Path | None = None, *, seed: SplitSeed = 0) -> DomainDataset:
    """MiniDomainNet: 126 things as clip art, paintings, photographs and sketches; read from DomainNet's folders.

    With its lists in a folder splits_mini next to the images, the test lists are the validation images of source
    domains. Without them, all images of these classes of DomainNet are used.
    """
    folders = find_domains("DomainNet", data_root(root), _PLACES, _DOMAINS, _CLASSES)
    found = read_image_folders("mini-domainnet", folders, seed, _CLASSES, subset=True)
    base = folders["real"].parent
    lists = {d: {"train": f"{d}_train.txt", "val": f"{d}_test.txt"} for d in _DOMAINS}
    # Not next to the images: lists with these names there belong to the complete DomainNet.
    places = (base / "splits_mini", base.parent / "splits_mini")
    listed = with_lists(found, lists, places, first_label=0, subset=True)
    if listed is not found:
        return listed
    return replace(found, splits=f"no lists in splits_mini, so all images of the classes; {found.splits}")

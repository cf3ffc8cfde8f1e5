"""Office-Home: art, clip art, product images and photographs; 65 classes. Venkateswara et al., CVPR 2017."""

from pathlib import Path

from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.image_folder import SplitFolders, read_image_folders
from domainadaptor.lab.data.locate import data_root, find_domains
from domainadaptor.lab.data.sets import SplitSeed

__all__ = ["office_home"]

_NAMES = """
Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair Clipboards Computer Couch
Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops Flowers Folder Fork Glasses Hammer Helmet
Kettle Keyboard Knives Lamp_Shade Laptop Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil
Postit_Notes Printer Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink Sneakers Soda Speaker Spoon
TV Table Telephone ToothBrush Toys Trash_Can Webcam
"""
_CLASSES = tuple(_NAMES.split())
_DOMAINS = {
    "art": ("Art",),
    "clipart": ("Clipart",),
    "product": ("Product",),
    "real_world": ("Real World", "Real"),
}
IMAGES = {"art": 2427, "clipart": 4365, "product": 4439, "real_world": 4357}
SOURCE = (
    "https://www.hemanthdv.org/officeHomeDataset.html. Unpack as OfficeHomeDataset_10072016/<domain>/<class>/; another "
    "name is OfficeHome."
)
# Dassl's, with a split; DomainBed's and the authors'; as published.
_PLACES = ("office_home_dg", "OfficeHome", "OfficeHomeDataset_10072016", "OfficeHome/OfficeHomeDataset_10072016")
_SPLIT = SplitFolders({"train": "train", "val": "val"})


def office_home(root: Path | None = None, *, seed: SplitSeed = 0) -> DomainDataset:
    """Office-Home: four styles of 65 things around a desk and a home."""
    folders = find_domains("Office-Home", data_root(root), _PLACES, _DOMAINS, _CLASSES)
    return read_image_folders("office-home", folders, seed, _CLASSES, split=_SPLIT)

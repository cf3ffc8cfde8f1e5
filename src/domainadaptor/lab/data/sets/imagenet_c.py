"""ImageNet-C: ImageNet's validation images under fifteen corruptions. Hendrycks and Dietterich, ICLR 2019."""

from dataclasses import replace
from pathlib import Path

from domainadaptor.errors import BadFile
from domainadaptor.lab.data.corrupted import CLEAN, FittedReader, with_corruptions
from domainadaptor.lab.data.corruptions import CORRUPTIONS
from domainadaptor.lab.data.domains import DomainDataset
from domainadaptor.lab.data.image_folder import TEST_ONLY, read_image_folders
from domainadaptor.lab.data.locate import data_root, descend, folders_in, listing, some
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.sets import NoiseSeed, Severity
from domainadaptor.lab.data.sets.imagenet import clean_images, labeled

__all__ = ["imagenet_c"]

_PLACES = ("ImageNet-C", "")
_GROUPS = ("", "noise", "blur", "weather", "digital")  # of the published archives
IMAGES = dict.fromkeys((CLEAN, *CORRUPTIONS), 50_000)
SOURCE = (
    "https://zenodo.org/records/2235448. Unpack as ImageNet-C/<corruption>/<severity>/<class>/. For the domain clean, "
    "put the validation images of ImageNet into imagenet/val/<class>/."
)


def imagenet_c(root: Path | None = None, *, severity: Severity = 3, seed: NoiseSeed = 0) -> DomainDataset:
    """ImageNet-C: ImageNet's validation images under fifteen corruptions: noise, blur, weather and more.

    The published files (ImageNet-C/fog/3/<class>/ and so on) are used if they exist. Otherwise the corruptions are
    computed from the validation images that `imagenet` reads, cropped to 224x224 pixels: with the same formulas and
    constants, but other random numbers and drawn frost, and not saved as JPEG again. The domain "clean" exists if these
    images do.
    """
    base = data_root(root)
    clean = clean_images(base)
    name = f"imagenet-c-{severity}"
    for place in _PLACES:
        folder = descend(base, place)
        if folder and (published := _published(folder, severity)):
            found = labeled(read_image_folders(name, published, 0))
            domains = ({CLEAN: clean.domains[CLEAN]} if clean else {}) | dict(found.domains)
            return replace(found, domains=domains, splits=f"{TEST_ONLY}; the published files")
    if clean is None:
        raise BadFile(
            f"No ImageNet-C in {str(base)!r}, which has {listing(base)}: expected ImageNet-C/<corruption>/{severity}/"
            "<class>/; or ImageNet's validation images in imagenet/val/<class>/"
        )
    # The published images are crops of images with a shorter side of 256.
    fitted = FittedReader(clean.domains[CLEAN].read, Preprocessing(224, 256))
    made = with_corruptions(clean.domains[CLEAN], fitted, severity, "imagenet", seed)
    return replace(clean, name=name, domains=made, splits=f"{TEST_ONLY}; corrupted here, with seed {seed}")


def _published(base: Path, severity: int) -> dict[str, Path]:
    """Return corruption -> folder of the published files, {} if there are none; raise if some are missing."""
    groups = [folder for group in _GROUPS if (folder := descend(base, group))]
    found = {
        corruption: folder
        for corruption in CORRUPTIONS
        for group in groups
        if (folder := descend(group, f"{corruption}/{severity}")) and folders_in(folder)
    }
    missing = [corruption for corruption in CORRUPTIONS if corruption not in found]
    if found and missing:
        raise BadFile(f"ImageNet-C in {str(base)!r} is incomplete: no folder {some(missing)} with severity {severity}")
    return found

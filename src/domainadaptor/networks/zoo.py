"""Torchvision and timm classifiers by name, with the preprocessing that belongs to each."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import timm
import torch
import torchvision
from PIL import Image
from timm.data import resolve_data_config
from torch import Tensor, nn
from torchvision import transforms

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.options import suggestion

_MOST_PIXELS = 50_000_000
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes a network's input: resize the shorter side, crop the center, normalize."""

    size: int
    resize: int
    mean: tuple[float, ...] = _IMAGENET_MEAN
    std: tuple[float, ...] = _IMAGENET_STD
    interpolation: str = "bilinear"
    squash: bool = False  # both sides are resized, without regard to the image's shape

    def at(self, size: int) -> "Preprocessing":
        """The same for another input size, with the same share of the image kept."""
        return replace(self, size=size, resize=round(self.resize * size / self.size))

    def sentence(self) -> str:
        """The same in words."""
        numbers = [" ".join(f"{value:g}" for value in values) for values in (self.mean, self.std)]
        sides = "both sides" if self.squash else "shorter side"
        return (
            f"{sides} to {self.resize} ({self.interpolation}), center crop {self.size}, "
            f"mean {numbers[0]}, deviation {numbers[1]}"
        )

    def transform(self) -> Callable[[Image.Image], Tensor]:
        """A function from an RGB image to a (3, size, size) tensor."""
        side = (self.resize, self.resize) if self.squash else self.resize
        steps = [
            partial(_checked_shape, self),
            transforms.Resize(side, transforms.InterpolationMode(self.interpolation)),
            transforms.CenterCrop(self.size),
            transforms.ToTensor(),
            transforms.Normalize(self.mean, self.std),
        ]
        return transforms.Compose(steps)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Blueprint:
    """A network that can be built: its name, how, and its preprocessing."""

    name: str
    preprocessing: Preprocessing
    classes: int  # of the published network
    make: Callable[[int], nn.Module]

    def build(self, classes: int, seed: int = 0) -> nn.Module:
        """The network with random weights, the same for the same seed, in eval mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.make(classes).eval()


def blueprint(name: str) -> Blueprint:
    """The network of that name, from torchvision, or else timm; "timm:NAME" and "torchvision:NAME" say which.

    Raises:
        BadOption: There is none; the message has the nearest names.
    """
    library, _, rest = name.rpartition(":")
    theirs = {"torchvision": _torchvision_names, "timm": timm.list_models}
    if library and library not in theirs:
        raise BadOption(f"unknown library {library!r} in {name!r}; {suggestion(library, theirs)}")
    if library != "timm" and rest in _torchvision_names():
        return _from_torchvision(rest)
    if library != "torchvision" and rest.partition(".")[0] in timm.list_models():
        return _from_timm(rest)
    known = theirs[library]() if library else [*_torchvision_names(), *timm.list_models()]
    raise BadOption(f"unknown network {name!r}; {_nearest(rest, known)}")


def _checked_shape(preprocessing: Preprocessing, picture: Image.Image) -> Image.Image:
    """Resizing the shorter side of a very long image would fill the memory."""
    long, short = max(picture.size), min(picture.size)
    if not preprocessing.squash and preprocessing.resize**2 * long / short > _MOST_PIXELS:
        raise BadFile(f"{picture.width}x{picture.height} is too long and thin to be resized")
    return picture


def _nearest(name: str, known: list[str]) -> str:
    guess = suggestion(name, known).partition("available:")[0].strip()
    return f"{guess or 'nothing is near it'} ({len(known)} networks of torchvision and timm are known)"


def _torchvision_names() -> list[str]:
    return torchvision.models.list_models(module=torchvision.models)  # type: ignore[no-any-return]


def _from_torchvision(name: str) -> Blueprint:
    known = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    preprocessing = Preprocessing(
        known.crop_size[0], known.resize_size[0], tuple(known.mean), tuple(known.std), known.interpolation.value
    )
    extra: dict[str, Any] = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}

    def make(classes: int) -> nn.Module:
        return torchvision.models.get_model(name, weights=None, num_classes=classes, **extra)  # type: ignore[no-any-return]

    return Blueprint(f"torchvision:{name}", preprocessing, 1000, make)


def _from_timm(name: str) -> Blueprint:
    try:
        published = timm.get_pretrained_cfg(name, allow_unregistered=False)
    except RuntimeError as error:
        raise BadOption(f"timm knows no weights {name!r}: leave out what follows the dot") from error
    config = resolve_data_config(pretrained_cfg=published.to_dict() if published else {})
    size = config["input_size"][-1]
    resize = int(size / config["crop_pct"])
    squash = config.get("crop_mode") == "squash"
    preprocessing = Preprocessing(size, resize, config["mean"], config["std"], config["interpolation"], squash)

    def make(classes: int) -> nn.Module:
        return timm.create_model(name, pretrained=False, num_classes=classes)  # type: ignore[no-any-return]

    return Blueprint(f"timm:{name}", preprocessing, published.num_classes if published else 1000, make)

"""From an image to a network's input: the one place with means and deviations."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from PIL import Image
from torch import Tensor
from torchvision import transforms

from domainadaptor.errors import BadFile

INTERPOLATIONS = tuple(mode.value for mode in transforms.InterpolationMode)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_MOST_PIXELS = 50_000_000


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes a network's input: resize the shorter side, crop the center, normalize."""

    size: int
    resize: int
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
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

    def fit(self, picture: Image.Image) -> Image.Image:
        """An RGB image of the network's size, still in eight bits.

        Raises:
            BadFile: It is too long and thin: resizing its shorter side would fill the memory.
        """
        long, short = max(picture.size), min(picture.size)
        if not self.squash and self.resize**2 * long / short > _MOST_PIXELS:
            raise BadFile(f"{picture.width}x{picture.height} is too long and thin to be resized")
        side = (self.resize, self.resize) if self.squash else self.resize
        resized = transforms.Resize(side, transforms.InterpolationMode(self.interpolation))(picture)
        return transforms.CenterCrop(self.size)(resized)  # type: ignore[no-any-return]

    def normalized(self, pixels: Tensor) -> Tensor:
        """Images between 0 and 1, (N, 3, H, W), as the network was trained to see them."""
        mean, std = (pixels.new_tensor(values).view(3, 1, 1) for values in (self.mean, self.std))
        return (pixels - mean) / std

    def transform(self) -> Callable[[Image.Image], Tensor]:
        """A function from an RGB image to a (3, size, size) tensor."""
        steps = [self.fit, transforms.ToTensor(), transforms.Normalize(self.mean, self.std)]
        return transforms.Compose(steps)  # type: ignore[no-any-return]


def squashed(
    size: int, mean: tuple[float, ...] = IMAGENET_MEAN, std: tuple[float, ...] = IMAGENET_STD
) -> Preprocessing:
    """Both sides resized to the network's size, nothing cropped away: the paper's test pipeline."""
    return Preprocessing(size, size, mean, std, squash=True)

"""From an image to a network's input."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from PIL import Image
from torch import Tensor
from torchvision import transforms

from domainadaptor.errors import BadFile, BadOption

INTERPOLATIONS = tuple(mode.value for mode in transforms.InterpolationMode)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_MAX_PIXELS = 50_000_000


@dataclass(frozen=True)
class Preprocessing:
    """Resize the shorter side, crop the center, normalize."""

    size: int
    resize: int
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    interpolation: str = "bilinear"
    squash: bool = False  # resize both sides, ignoring the aspect ratio

    def __post_init__(self) -> None:
        if not 0 < self.size <= self.resize:
            raise BadOption(f"expected a size above 0 and a resize of at least that, got {self.size} and {self.resize}")
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise BadOption(f"expected three means and three positive deviations, got {self.mean}, {self.std}")
        if self.interpolation not in INTERPOLATIONS:
            raise BadOption(f"interpolation {self.interpolation!r}: expected one of {', '.join(INTERPOLATIONS)}")

    def at(self, size: int) -> "Preprocessing":
        """Return the same for another input size, keeping the same share of the image."""
        return replace(self, size=size, resize=round(self.resize * size / self.size))

    def sentence(self) -> str:
        """Return a description in words."""
        mean, std = (" ".join(f"{value:g}" for value in values) for values in (self.mean, self.std))
        sides = "both sides" if self.squash else "shorter side"
        return f"{sides} to {self.resize} ({self.interpolation}), center crop {self.size}, mean {mean}, deviation {std}"

    def fit(self, image: Image.Image) -> Image.Image:
        """Return an RGB image of the network's input size, still with eight bits per channel."""
        long, short = max(image.size), min(image.size)
        if not self.squash and self.resize**2 * long / short > _MAX_PIXELS:
            raise BadFile(f"{image.width}x{image.height} is too long and thin to be resized")
        side = (self.resize, self.resize) if self.squash else self.resize
        resized = transforms.Resize(side, transforms.InterpolationMode(self.interpolation))(image)
        return transforms.CenterCrop(self.size)(resized)  # type: ignore[no-any-return]

    def normalized(self, pixels: Tensor) -> Tensor:
        """Return images between 0 and 1, (N, 3, H, W), normalized for the network."""
        mean, std = (pixels.new_tensor(values).view(3, 1, 1) for values in (self.mean, self.std))
        return (pixels - mean) / std

    def transform(self) -> Callable[[Image.Image], Tensor]:
        """Return a function from an RGB image to a (3, size, size) tensor."""
        steps = [self.fit, transforms.ToTensor(), transforms.Normalize(self.mean, self.std)]
        return transforms.Compose(steps)  # type: ignore[no-any-return]


def squashed(
    size: int, mean: tuple[float, ...] = IMAGENET_MEAN, std: tuple[float, ...] = IMAGENET_STD
) -> Preprocessing:
    """Resize both sides to the network's input size without cropping: the paper's test pipeline."""
    return Preprocessing(size, size, mean, std, squash=True)

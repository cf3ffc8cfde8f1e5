"""What the browser can ask for."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from domainadaptor import list_methods, method_info
from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.lab.data.corruptions import CORRUPTIONS
from domainadaptor.lab.data.sets.digits import STYLES
from domainadaptor.page.networks import DEMO, HELD_OUT
from domainadaptor.page.pictures import MAX_BYTES, MAX_STORED

_MAX_IMAGES = 1000
# Methods to try first, in plain words; the first one is the default.
_FIRST = {
    DEFAULT_METHOD: "Mixes what it measures on your images with its knowledge from training, as far as they differ, "
    "and looks at each image three times. Nothing to tune.",
    "domainadaptor-t": "Mixes both in another way, then learns a step.",
    "adabn": "Replaces its knowledge from training by what it measures on your images. For large batches.",
    "tent": "Learns a little from every batch and remembers it for the next. For many images of one kind.",
}
_MORE = {"a head trained for it", "source samples", "altered training"}  # needs that the page cannot meet

_Text = Annotated[str, Field(min_length=1, max_length=4096)]


class PicturesOrder(BaseModel):
    """Some images, spoiled or not, as a network gets them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    network: _Text = DEMO
    style: _Text | None = None  # of the sample digits, in place of own images
    images: Annotated[dict[_Text, _Text], Field(max_length=_MAX_IMAGES)] = {}  # path in its folder -> id
    corruption: Literal[CORRUPTIONS] | None = None  # type: ignore[valid-type]
    severity: Annotated[int, Field(ge=1, le=5)] = 3

    def subject(self) -> str:
        """Return in words which images these are, without any path."""
        folders = {name.partition("/")[0] for name in self.images if "/" in name}
        own = folders.pop() if len(folders) == 1 else "images"
        spoiled = f", {self.corruption.replace('_', ' ')} {self.severity} of 5" if self.corruption else ""
        return (f"sample digits ({self.style})" if self.style else own) + spoiled


class RunOrder(PicturesOrder):
    """A run: a method on these images."""

    method: _Text
    batch_size: Annotated[int, Field(ge=1, le=512)] = 64


def offers() -> dict[str, Any]:
    """Return the samples, corruptions, limits, and the methods that need nothing but a network and images."""
    rest = [name for name in list_methods() if name not in (*_FIRST, "source")]
    more = {name: method_info(name).summary for name in rest if not _MORE & set(method_info(name).needs)}
    return {
        "styles": sorted(STYLES, key=lambda style: style != HELD_OUT),
        "held_out": HELD_OUT,
        "corruptions": CORRUPTIONS,
        "methods": [{"name": name, "summary": summary} for name, summary in (_FIRST | more).items()],
        "limits": {"images": _MAX_IMAGES, "bytes": MAX_BYTES, "stored": MAX_STORED},
    }

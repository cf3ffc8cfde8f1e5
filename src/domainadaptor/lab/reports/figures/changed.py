"""Test images whose answer changed, with both answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageOps

from domainadaptor.lab.reports.figures.canvas import GREEN, VERMILLION, panels

_ACROSS = 6
_SIDE = 128  # pixels; more would make the page heavy


@dataclass(frozen=True)
class Changed:
    """One image, what it is, and what was said of it."""

    picture: Image.Image
    domain: str
    truth: str
    before: str
    before_confidence: float | None
    after: str
    after_confidence: float | None


def draw_changed(images: Sequence[Changed]) -> Any:
    """A grid of pictures; below each the answer before and after, green with a tick where it is right."""
    figure, shown = panels(len(images), _ACROSS, 1.95, 2.85)
    for panel, image in zip(shown, images, strict=True):
        panel.imshow(_square(image.picture))
        panel.set_xticks([])
        panel.set_yticks([])
        panel.spines[:].set_visible(False)
        panel.set_title(f"{_short(image.truth, 20)}\n{_short(image.domain, 24)}", fontsize=10, pad=4)
        panel.set_xlabel(" \n ", fontsize=12)  # keeps room for the answers
        for line, (word, answer, sure) in enumerate(
            (("before", image.before, image.before_confidence), ("after", image.after, image.after_confidence))
        ):
            right = answer == image.truth
            percent = "" if sure is None else f" {100 * sure:.0f} %"
            text = f"{word}: {_short(answer, 12)}{percent} {'✓' if right else '✗'}"
            color = GREEN if right else VERMILLION
            panel.text(
                0.5,
                -0.03 - 0.12 * line,
                text,
                fontsize=9.5,
                transform=panel.transAxes,
                ha="center",
                va="top",
                color=color,
            )
    return figure


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _square(picture: Image.Image) -> Image.Image:
    """The whole picture on white; a small one is shown as the pixels that it is."""
    small = max(picture.size) <= _SIDE // 2
    method = Image.Resampling.NEAREST if small else Image.Resampling.LANCZOS
    return ImageOps.pad(picture.convert("RGB"), (_SIDE, _SIDE), method, color="white")

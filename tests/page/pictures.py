"""Image files for the page."""

import io
from pathlib import Path

from PIL import Image

from domainadaptor.lab.data.sets.digits import digits


def picture(at: int = 0, style: str = "pen") -> bytes:
    """A test digit as a file."""
    domain = digits().domain(style)
    file = io.BytesIO()
    domain.read(domain.select("test")[at].name).save(file, "PNG")
    return file.getvalue()


def label(at: int) -> str:
    return str(digits().domain("pen").select("test")[at].label)


def write_folder(folder: Path, count: int = 24) -> Path:
    """Write digits into folders of their classes, with a text and half an image among them."""
    for at in range(count):
        place = folder / label(at)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{at}.png").write_bytes(picture(at))
    (folder / "notes.txt").write_text("no image")
    (folder / label(0) / "half.png").write_bytes(picture(0)[:200])
    return folder


def pixels(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")

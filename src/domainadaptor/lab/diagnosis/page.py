"""A diagnosis of a folder of images as a page for a browser, and as JSON."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from domainadaptor.adaptation.diagnosis import Diagnosis
from domainadaptor.lab.data.images import as_url, read_image
from domainadaptor.lab.networks.loading import LoadedNetwork

_EXAMPLES = 8
_WIDTH, _HEIGHT = 720.0, 200.0  # of the picture of the layers


@dataclass(frozen=True)
class FolderDiagnosis:
    """A diagnosis, the images that it was made from, and what to type next."""

    diagnosis: Diagnosis
    loaded: LoadedNetwork
    folder: Path
    names: Sequence[str]  # of the images, in the order of the diagnosis
    commands: dict[str, str]  # method -> command

    def as_json(self) -> dict[str, Any]:
        """Return everything, for programs: classes and images by name."""
        found = self.diagnosis.as_json()
        for answer in found["changed"]:
            answer["file"] = self.names[answer.pop("position")]
            answer |= {when: self.loaded.classes[answer[when]] for when in ("before", "after")}
        return {
            "network": self.loaded.name,
            "folder": self.folder.name,
            **found,
            "command": self.commands[self.diagnosis.method],
            "preprocessing": asdict(self.loaded.preprocessing),
            "notes": self.loaded.notes,
        }

    def as_html(self) -> str:
        """Return the page."""
        return _template().render(
            found=self,
            diagnosis=self.diagnosis,
            bars=_bars(self.diagnosis),
            chance=_y(self.diagnosis.chance, self.diagnosis),
            one=_y(1.0, self.diagnosis),
            width=_WIDTH,
            height=_HEIGHT,
            examples=[self._example(at) for at in range(min(_EXAMPLES, len(self.diagnosis.changed)))],
        )

    def _example(self, at: int) -> dict[str, Any]:
        answer = self.diagnosis.changed[at]
        name = self.names[answer.position]
        picture = self.loaded.preprocessing.fit(read_image(self.folder / name, self.folder))
        sides = ("before", answer.before, answer.before_confidence), ("after", answer.after, answer.after_confidence)
        return {
            "name": name,
            "picture": as_url(picture),
            **{when: (self.loaded.classes[answered], sure) for when, answered, sure in sides},
        }


def _bars(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return the bar of each layer. Heights are distances, of which the layers have the squares."""
    step = _WIDTH / len(diagnosis.layers)
    return [
        {
            "x": at * step,
            "y": _y(distance, diagnosis),
            "width": max(step - (2 if step > 6 else 0.5), 0.5),
            "name": layer.name,
            "distance": math.sqrt(distance),
            "far": distance > 2 * diagnosis.chance,
        }
        for at, layer in enumerate(diagnosis.layers)
        for distance in [max(layer.shift + diagnosis.chance, 0.0)]
    ]


def _y(distance: float, diagnosis: Diagnosis) -> float:
    highest = max(1.0, *(layer.shift + diagnosis.chance for layer in diagnosis.layers))
    return _HEIGHT * (1 - math.sqrt(distance / (1.1 * highest)))


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("domainadaptor.lab.diagnosis"), trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, autoescape=True,
    )  # fmt: skip
    environment.filters["percent"] = lambda share: f"{100 * share:.0f}\N{NO-BREAK SPACE}%"
    return environment.get_template("page.html.j2")

"""What a user says of raw weights, which know neither their classes nor how their images were prepared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from domainadaptor.errors import BadOption
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.options import check_choice, check_count, check_number

RESIZES = ("crop", "squash")


@dataclass(frozen=True)
class Raw:
    """How images are given to raw weights, and what their outputs are; None and () leave the network's usual."""

    resize: str | None = None  # "crop": shorter side and center crop; "squash": both sides, without a crop
    size: int | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    classes: tuple[str, ...] = ()  # in the order of the outputs
    file: str = ""  # that names the classes

    def __post_init__(self) -> None:
        if self.resize is not None:
            check_choice("resize", self.resize, RESIZES)
        if self.size is not None:
            check_count("size", self.size, low=1)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != 3:
                raise BadOption(f"{name}: expected three numbers, for red, green and blue; got {len(values)}")
            for value in values or ():
                check_number(name, value, low=0, above=name == "std")

    def settings(self) -> dict[str, Any]:
        """What was said, for a record; nothing where nothing was."""
        said = {
            "resize": self.resize,
            "size": self.size,
            "mean": None if self.mean is None else list(self.mean),
            "std": None if self.std is None else list(self.std),
            "classes": list(self.classes) or None,
        }
        return {name: value for name, value in said.items() if value is not None}

    def words(self) -> list[str]:
        """The same as options of a command, with the file that names the classes."""
        words: list[str] = []
        for name, value in self.settings().items():
            values = [self.file] if name == "classes" else value if isinstance(value, list) else [value]
            words += [f"--{name}", *map(str, values)]
        return words

    def check_wanted(self, what: str) -> None:
        """Refuses what was said where something else knows better.

        Raises:
            BadOption: Something was said.
        """
        for name in self.settings():
            raise BadOption(
                f"{what} has its own preprocessing and classes: leave out --{name}, which is for --weights FILE"
            )

    def applied(self, usual: Preprocessing) -> Preprocessing:
        """The network's usual preprocessing with what was said."""
        own = usual if self.size is None else usual.at(self.size)
        if self.resize == "squash":
            own = replace(own, resize=own.size, squash=True)
        elif self.resize == "crop":
            own = replace(own, squash=False)
        mean, std = (
            tuple(map(float, said)) if said is not None else kept
            for said, kept in ((self.mean, own.mean), (self.std, own.std))
        )
        return replace(own, mean=mean, std=std)

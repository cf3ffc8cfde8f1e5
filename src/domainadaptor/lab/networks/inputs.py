"""How images become a network's input, and its class names: from the user, or from the config files of its weights.

timm writes config.json beside weights, Hugging Face config.json and preprocessor_config.json.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from timm.data import resolve_data_config

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.options import check_choice, check_count, check_number

CONFIG, _PREPROCESSOR = "config.json", "preprocessor_config.json"
_RESIZES = ("crop", "squash")


@dataclass(frozen=True)
class InputOptions:
    """The user's preprocessing and classes for a network; None and () leave what is known otherwise."""

    resize: int | str | None = None  # pixels of the shorter side; "crop": that and a center crop; "squash": both sides
    size: int | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    classes: tuple[str, ...] = ()  # in the order of the outputs
    file: str = ""  # that names the classes
    crop_pct: float | None = None  # size of the center crop / resized shorter side, as in timm

    def __post_init__(self) -> None:
        if isinstance(self.resize, str) and self.resize.isdecimal():  # as typed on a command line
            object.__setattr__(self, "resize", int(self.resize))
        if isinstance(self.resize, str):
            check_choice("resize", self.resize, _RESIZES)
        for name, count in (("resize", self.resize), ("size", self.size)):
            if count is not None and not isinstance(count, str):
                check_count(name, count, low=1)
        if self.crop_pct is not None:
            check_number("crop_pct", self.crop_pct, low=0, high=1, above=True)
            if self.resize is not None:
                raise BadOption("resize and crop_pct both say how much of an image is cropped; pass one of them")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != 3:
                raise BadOption(f"{name}: expected three numbers, for red, green and blue; got {len(values)}")
            for value in values or ():
                check_number(name, value, low=0, above=name == "std")

    def settings(self) -> dict[str, Any]:
        """Return what the user gave, for a record."""
        names = ("resize", "size", "crop_pct", "mean", "std", "classes")
        given = {name: getattr(self, name) for name in names if getattr(self, name) not in (None, ())}
        return {name: list(value) if name in ("mean", "std", "classes") else value for name, value in given.items()}

    def left_open(self) -> list[str]:
        """Return the parts of the preprocessing that the user did not give."""
        given = self.settings()
        parts = {"size": ("size",), "resize": ("resize", "crop_pct"), "mean": ("mean",), "std": ("std",)}
        return [part for part, names in parts.items() if not any(name in given for name in names)]

    def flags(self) -> list[str]:
        """Return the same as options of a command, with the file that names the classes."""
        flags: list[str] = []
        for name, value in self.settings().items():
            values = [self.file] if name == "classes" else value if isinstance(value, list) else [value]
            flags += [f"--{name.replace('_', '-')}", *map(str, values)]
        return flags

    def refuse(self, what: str, allowed: Sequence[str] = ()) -> None:
        """Refuse options for a network that includes what they say."""
        for name in self.settings():
            if name not in allowed:
                flag = f"--{name.replace('_', '-')}"
                raise BadOption(f"{what} includes its preprocessing and classes: leave out {flag}")

    def apply_to(self, usual: Preprocessing) -> Preprocessing:
        """Return preprocessing with the user's options."""
        own = usual if self.size is None else usual.at(self.size)
        if self.resize == "squash":
            own = replace(own, squash=True, resize=own.size)
        elif self.resize is not None:
            own = replace(own, squash=False, resize=self.resize if isinstance(self.resize, int) else own.resize)
        elif self.crop_pct is not None:
            own = replace(own, resize=int(own.size / self.crop_pct))
        given = {"mean": self.mean, "std": self.std}
        changes = {name: tuple(map(float, values)) for name, values in given.items() if values is not None}
        return replace(own, **changes)  # type: ignore[arg-type]


def read_classes(path: Path) -> list[str]:
    """Read class names: one per line, or a JSON list."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        named = json.loads(text) if path.suffix.lower() == ".json" else text.splitlines()
    except (OSError, ValueError) as error:
        raise BadFile(f"Cannot read class names from {str(path)!r}: {error}") from error
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise BadFile(f"{str(path)!r}: expected one class name per line, or a JSON list of names")
    names = [name.strip() for name in named if name.strip()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if len(names) < 2 or twice:
        raise BadFile(
            f"{str(path)!r}: expected two or more different class names, got {len(names)}; repeated: {twice or 'none'}"
        )
    return names


class WeightsConfig(NamedTuple):
    """What config files in the folder of weights say; None and () where they say nothing."""

    network: str | None = None  # of timm
    model: dict[str, Any] | None = None  # configuration of a Hugging Face model
    preprocessing: Preprocessing | None = None
    classes: tuple[str, ...] = ()
    file: str = ""  # that has the preprocessing


def read_config(folder: Path) -> WeightsConfig:
    """Read the config files of timm or Hugging Face in a folder, if there are any."""
    config, processor = _read_json(folder / CONFIG), _read_json(folder / _PREPROCESSOR)
    timm_config = config.get("pretrained_cfg") or (config if "crop_pct" in config else {})
    try:
        names = config.get("label_names") or timm_config.get("label_names") or config.get("id2label") or ()
        if isinstance(names, Mapping):
            names = [names[key] for key in sorted(names, key=int)]
        classes = tuple(map(str, names)) if names and not str(names[0]).startswith("LABEL_") else ()
        preprocessing, file = None, _PREPROCESSOR
        if processor:
            preprocessing = _huggingface(processor)
        elif timm_config:
            preprocessing, file = timm_preprocessing(timm_config), CONFIG
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadFile(f"Config files in {str(folder)!r} are not as timm or Hugging Face write them: {error}") from error
    network = config.get("architecture") or timm_config.get("architecture")
    model = config if "model_type" in config else None
    return WeightsConfig(network and str(network), model, preprocessing, classes, file)


def timm_preprocessing(config: Mapping[str, Any]) -> Preprocessing:
    """Return the test preprocessing that a pretrained_cfg of timm describes."""
    known = resolve_data_config(pretrained_cfg=dict(config))
    *_, height, size = known["input_size"]
    if height != size or known.get("crop_mode") == "border":
        name = config.get("architecture", "it")
        raise BadOption(f"timm:{name} needs images that are not square, or padded, which is not supported")
    squash = known.get("crop_mode") == "squash"
    mean, std = (tuple(map(float, known[name])) for name in ("mean", "std"))
    return Preprocessing(size, int(size / known["crop_pct"]), mean, std, known["interpolation"], squash)


def _huggingface(config: Mapping[str, Any]) -> Preprocessing:
    """Return the preprocessing that a preprocessor_config.json describes."""
    cropped = config.get("do_center_crop") or "crop_pct" in config
    given = config.get("size", 224)
    sides = {"shortest_edge" if cropped else "height": given} if isinstance(given, int) else dict(given)
    resize = int(sides.get("shortest_edge") or sides["height"])
    squash = "shortest_edge" not in sides
    crop = config.get("crop_size", resize) if config.get("do_center_crop") else resize
    size = crop if isinstance(crop, int) else int(crop["height"])
    if "crop_pct" in config and not squash:  # ConvNeXt: large images are squashed
        squash = resize >= 384
        resize = resize if squash else int(resize / config["crop_pct"])
    odd = sides.get("width", resize) != sides.get("height", resize)
    if odd or config.get("rescale_offset") or abs(config.get("rescale_factor", 1 / 255) - 1 / 255) > 1e-6:
        raise BadOption("expected square images, scaled to 0 to 1")
    normalized = config.get("do_normalize", True)
    mean, std = (tuple(map(float, config[f"image_{name}"])) if normalized else () for name in ("mean", "std"))
    interpolation = Image.Resampling(config.get("resample", Image.Resampling.BILINEAR)).name.lower()
    return Preprocessing(size, resize, mean or (0.0,) * 3, std or (1.0,) * 3, interpolation, squash)


def _read_json(path: Path) -> dict[str, Any]:
    """Return the object in a file; {} if there is none: the file may be another program's."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}

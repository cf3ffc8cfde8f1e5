"""Networks by name: torchvision, timm and CIFAR ResNets, each with its preprocessing.

To add a library of networks, write its two functions here and add them to `_LIBRARIES`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import timm
import torch
import torchvision
from torch import Tensor, nn

from domainadaptor.errors import BadOption
from domainadaptor.extras import require_extra
from domainadaptor.lab.data.preprocessing import Preprocessing, squashed
from domainadaptor.lab.networks.cifar_resnet import DEPTHS, CifarResNet
from domainadaptor.lab.networks.inputs import timm_preprocessing
from domainadaptor.options import suggestion

# Code, how weights were stored, and a number that id2label repeats.
_NOT_THE_NETWORK = ("auto_map", "dtype", "torch_dtype", "quantization_config", "num_labels")


@dataclass(frozen=True)
class NetworkSpec:
    """A network that can be built, with its preprocessing."""

    name: str
    preprocessing: Preprocessing
    classes: int  # of the published network
    make: Callable[[int], nn.Module]
    by_file: Mapping[str, Preprocessing] = field(default_factory=dict)  # by the name of a published weights file
    config: Mapping[str, Any] = field(default_factory=dict)  # of a Hugging Face model

    def build(self, classes: int, seed: int = 0) -> nn.Module:
        """Return the network in eval mode, with random weights that depend on the seed alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.make(classes).eval()

    def head_tensors(self) -> tuple[str, ...]:
        """Return the names of the tensors that depend on the number of classes, including auxiliary heads."""
        few, more = self.outline(2), self.outline(3)
        return tuple(name for name, tensor in few.items() if tensor.shape != more[name].shape)

    def outline(self, classes: int) -> dict[str, Tensor]:
        """Return the network's tensors without values."""
        try:
            with torch.device("meta"):  # shapes need neither memory nor time
                network = self.make(classes)
        except NotImplementedError:  # torchvision's RegNets compute their widths with tensors
            network = self.build(classes)
        return dict(network.state_dict())


def find_network(name: str) -> NetworkSpec:
    """Return the network of that name; a prefix such as "timm:" names the library."""
    library, _, rest = name.rpartition(":")
    if library and library not in _LIBRARIES:
        raise BadOption(f"unknown library {library!r} in {name!r}; {suggestion(library, _LIBRARIES)}")
    libraries = [_LIBRARIES[library]] if library else list(_LIBRARIES.values())
    for names, spec in libraries:
        if rest.partition(".")[0] in names() and (spec is _from_timm or "." not in rest):
            return spec(rest)
    known = [known for names, _ in libraries for known in names()]
    near = suggestion(rest, known).partition(" available:")[0]
    raise BadOption(f"unknown network {name!r}; {near} ({len(known)} networks of {', '.join(_LIBRARIES)} are known)")


def _for_cifar(name: str) -> NetworkSpec:
    depth = int(name.removeprefix("resnet"))
    return NetworkSpec(f"cifar:{name}", squashed(32), 10, lambda classes: CifarResNet(depth, classes))


def _from_torchvision(name: str) -> NetworkSpec:
    published = torchvision.models.get_model_weights(name)
    by_file = {weights.url.rpartition("/")[2]: _transforms(weights) for weights in published}
    # As torchvision builds them for its weights, which transform the images themselves.
    theirs = {"init_weights": True, "transform_input": True}
    extra: dict[str, Any] = theirs if name in ("googlenet", "inception_v3") else {}

    return NetworkSpec(
        f"torchvision:{name}",
        _transforms(published.DEFAULT),
        1000,
        lambda classes: torchvision.models.get_model(name, weights=None, num_classes=classes, **extra),
        by_file,
    )


def _transforms(weights: Any) -> Preprocessing:
    known = weights.transforms()
    return Preprocessing(
        known.crop_size[0], known.resize_size[0], tuple(known.mean), tuple(known.std), known.interpolation.value
    )


def _from_timm(name: str) -> NetworkSpec:
    try:
        published = timm.get_pretrained_cfg(name, allow_unregistered=False)
    except RuntimeError as error:
        raise BadOption(f"timm has no weights {name!r}: leave out what follows the dot") from error
    preprocessing = timm_preprocessing(published.to_dict() if published else {})
    classes = (published.num_classes if published else 0) or 1000  # 0: published without a head
    return NetworkSpec(
        f"timm:{name}", preprocessing, classes, lambda own: timm.create_model(name, pretrained=False, num_classes=own)
    )


def huggingface_network(config: Mapping[str, Any]) -> NetworkSpec:
    """Return the network that the config.json of a Hugging Face image classifier describes."""
    require_extra("hf", "a Hugging Face folder")
    from transformers import AutoConfig, AutoModelForImageClassification

    data = {name: value for name, value in config.items() if name not in _NOT_THE_NETWORK}

    def make(classes: int) -> nn.Module:
        own = AutoConfig.for_model(**data)
        own.num_labels = classes
        return AutoModelForImageClassification.from_config(own, trust_remote_code=False)  # type: ignore[no-any-return]

    kind = data.get("model_type")
    try:
        known = AutoConfig.for_model(**data)
        classes = int(known.num_labels or 2)
        with torch.device("meta"):
            make(classes)
    except Exception as error:  # transformers checks little of a config
        why = str(error).splitlines()[0]
        raise BadOption(f"transformers cannot build an image classifier of model_type {kind!r}: {why}") from error
    usual = squashed(getattr(known, "image_size", 224))
    return NetworkSpec(f"huggingface:{kind}", usual, classes, make, config=data)


# Library -> the names of its networks, and a function from a name to its spec; the first library with a name wins.
_LIBRARIES: dict[str, tuple[Callable[[], list[str]], Callable[[str], NetworkSpec]]] = {
    "torchvision": (partial(torchvision.models.list_models, module=torchvision.models), _from_torchvision),
    "cifar": (lambda: [f"resnet{depth}" for depth in DEPTHS], _for_cifar),
    "timm": (timm.list_models, _from_timm),
}

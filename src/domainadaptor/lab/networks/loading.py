"""Networks with their weights, ready to use: a checkpoint, a model folder, or a name with weights from a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from domainadaptor.errors import BadFile, BadOption
from domainadaptor.lab.data.preprocessing import Preprocessing
from domainadaptor.lab.data.sets.imagenet import imagenet_classes
from domainadaptor.lab.networks.checkpoint import Checkpoint, CheckpointCard, is_checkpoint, load_checkpoint
from domainadaptor.lab.networks.heads import remove_head_bias
from domainadaptor.lab.networks.inputs import CONFIG, InputOptions, WeightsConfig, read_config
from domainadaptor.lab.networks.pretrained import find_pretrained
from domainadaptor.lab.networks.weights import (
    PICKLED,
    check_outline,
    count_classes,
    includes_weights,
    load_weights,
    match_names,
    read_weights,
)
from domainadaptor.lab.networks.zoo import NetworkSpec, find_network, huggingface_network

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # in a model folder


@dataclass(frozen=True)
class LoadedNetwork:
    """A network with its classes and its preprocessing."""

    network: nn.Module
    name: str
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    origin: str  # of the preprocessing
    notes: tuple[str, ...] = ()  # caveats to show with every result
    random: bool = False  # no weights were given
    heads: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)  # trained besides the network
    dataset: str = ""  # it was trained on, if known
    recipe: Mapping[str, Any] = field(default_factory=dict)  # it was trained with
    sources: tuple[str, ...] = ()  # domains it was trained on
    head_bias: bool = True
    config: Mapping[str, Any] = field(default_factory=dict)  # of a Hugging Face model
    file: Path | None = None  # with the weights
    card: CheckpointCard | None = None  # of the checkpoint

    def preprocessing_sentence(self) -> str:
        """Return the preprocessing in words, and where it comes from."""
        return f"{self.preprocessing.sentence()} ({self.origin})"

    def to_checkpoint(self) -> Checkpoint:
        """Return a checkpoint with the weights, the classes and the preprocessing."""
        card = self.card or CheckpointCard(
            self.name, self.classes, self.preprocessing, head_bias=self.head_bias, config=dict(self.config)
        )
        card = replace(card, preprocessing=self.preprocessing, note="; ".join(self.notes))
        return Checkpoint(card, self.network.state_dict(), self.heads)

    def with_inputs(self, inputs: InputOptions) -> "LoadedNetwork":
        """Return the same with the user's preprocessing."""
        given = [name for name in inputs.settings() if name != "classes"]
        if not given:
            return self
        origin = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        return replace(
            self, preprocessing=inputs.apply_to(self.preprocessing), origin=f"{origin}; otherwise {self.origin}"
        )


def load_network(
    network: str,
    weights: str | None = None,
    inputs: InputOptions | None = None,
    root: Path | None = None,
    seed: int = 0,
) -> LoadedNetwork:
    """Load a network in eval mode.

    Args:
        network: The name of a network, a checkpoint file, or a folder of timm or Hugging Face with a config.json.
        weights: A file, or "pretrained" for published weights on this machine; None or "none" for random weights.
        inputs: The user's preprocessing and class names. Default: those of the checkpoint, of config files beside the
            weights, or of the published network.
        root: Folder of data sets and published weights.
        seed: Seed of random weights.
    """
    inputs = inputs or InputOptions()
    if includes_weights(network):
        if weights:
            raise BadOption(f"{network} includes weights: leave out --weights")
        found = _from_folder(Path(network), inputs) if Path(network).is_dir() else _from_checkpoint(network, inputs)
    elif weights in (None, "none"):
        spec = find_network(network)
        names = inputs.classes or _numbers(spec.classes)
        usual = f"the default of {spec.name}"
        found = LoadedNetwork(spec.build(len(names), seed), spec.name, names, spec.preprocessing, usual, random=True)
    elif weights == "pretrained":
        found = _pretrained(find_network(network), inputs, root)
    else:
        found = _from_file(find_network(network), Path(str(weights)), inputs)
    return found.with_inputs(inputs)


def _from_checkpoint(network: str, inputs: InputOptions) -> LoadedNetwork:
    path = Path(network)
    if network.lower().endswith(PICKLED):
        raise BadOption(f"{network!r} holds weights only. Pass the network's name and --weights {path.name}")
    inputs.refuse(path.name, allowed=["size"])
    checkpoint = load_checkpoint(path)
    card = checkpoint.card
    notes = [card.note] if card.note else []
    trained_at = card.preprocessing.size
    if inputs.size not in (None, trained_at):
        notes.append(f"these weights were trained on images of side {trained_at}, not --size {inputs.size}")
    return LoadedNetwork(
        checkpoint.build(path),
        card.network,
        card.classes,
        card.preprocessing,
        "of the checkpoint",
        tuple(notes),
        heads=checkpoint.heads,
        dataset=card.dataset,
        recipe=card.recipe,
        sources=card.sources,
        file=path,
        card=card,
    )


def _from_folder(folder: Path, inputs: InputOptions) -> LoadedNetwork:
    config = read_config(folder)
    file = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise BadFile(f"No weights in {str(folder)!r}, which has {CONFIG}: expected {' or '.join(_WEIGHTS)} there")
    if config.network is None and config.model is None:
        raise BadFile(f"{str(folder / CONFIG)!r} names no network: expected architecture (timm) or model_type in it")
    if config.model is None:
        return _from_file(find_network(f"timm:{config.network}"), file, inputs)
    spec = huggingface_network(config.model)
    check_outline(spec.outline(spec.classes), read_weights(file), file)
    return _from_file(spec, file, inputs)


def _pretrained(spec: NetworkSpec, inputs: InputOptions, root: Path | None) -> LoadedNetwork:
    inputs.refuse(f"{spec.name} with published weights", allowed=["size", "classes"])
    found = find_pretrained(spec, root)
    names = inputs.classes or found.classes
    built = spec.build(len(names))
    load_weights(built, found.tensors, Path(found.origin), names)
    own, notes = found.preprocessing, [found.note] if found.note else []
    if inputs.size not in (None, own.size):
        notes.append(f"these weights were trained on images of side {own.size}, not --size {inputs.size}")
    return LoadedNetwork(built, spec.name, names, own, "of the published weights", tuple(notes), file=found.file)


def _from_file(spec: NetworkSpec, path: Path, inputs: InputOptions) -> LoadedNetwork:
    if path.is_file() and is_checkpoint(path):
        raise BadOption(
            f"{str(path)!r} is a checkpoint, which includes its network, classes and preprocessing. Pass it instead of "
            "the network's name, without --weights"
        )
    tensors, config = read_weights(path), read_config(path.parent)
    network, names, notes = spec.build(len(inputs.classes) or spec.classes), inputs.classes, []
    if not names:
        held = count_classes(tensors, network, spec.head_tensors()) or spec.classes
        names = config.classes if len(config.classes) == held else _numbers(held)
        if held != spec.classes:
            network = spec.build(held)
        elif held == len(imagenet_classes()) and not config.classes:
            names = imagenet_classes()
            notes.append(f"{path.name} has {held} outputs: assuming the classes of ImageNet; pass --classes for others")
    given = match_names(tensors, own := network.state_dict())
    missing = [name for name in own if name not in given and not name.endswith("num_batches_tracked")]
    head_bias = not (len(missing) == 1 and missing[0] in spec.head_tensors() and missing[0].endswith("bias"))
    if not head_bias:
        remove_head_bias(network, len(names))
        notes.append(f"{path.name} has a head without bias")
    load_weights(network, tensors, path, names)
    usual, origin = _usual(spec, path, config)
    if config.preprocessing is None and (left := inputs.left_open()):
        notes.append(
            f"{path.name} does not include preprocessing; {', '.join(left)}: {origin}. Third-party weights usually "
            f"need their own: pass {', '.join(f'--{name}' for name in left)}, or pack them with the weights "
            "(`domainadaptor pack`)"
        )
    return LoadedNetwork(
        network, spec.name, names, usual, origin, tuple(notes), head_bias=head_bias, config=spec.config, file=path
    )


def _usual(spec: NetworkSpec, path: Path, config: WeightsConfig) -> tuple[Preprocessing, str]:
    """Return the preprocessing for third-party weights, and where it comes from."""
    if config.preprocessing is not None:
        return config.preprocessing, f"from {config.file}"
    if path.name in spec.by_file:
        return spec.by_file[path.name], f"torchvision's for {path.name}"
    return spec.preprocessing, f"the default of {spec.name}"


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(count))

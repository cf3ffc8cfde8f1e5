"""Weights files: reading them without running code, and loading them into networks."""

import argparse
import hashlib
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from domainadaptor.errors import BadFile
from domainadaptor.lab.networks.inputs import CONFIG

PICKLED = (".pt", ".pth", ".th", ".tar", ".bin", ".ckpt", ".pkl", ".t7")
EXTRA_HEADS = "heads."  # prefix of the tensors that a checkpoint holds besides its network
_COUNTER = "num_batches_tracked"  # missing in old files
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_AVERAGED = "n_averaged"  # a counter of torch's AveragedModel
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12])\.")  # norm.1. is norm1. now
_NESTED = ("state_dict", "model_state_dict", "model_dict", "model", "network", "net", "weights", "state")
_DOMAINBED = ("featurizer.network.", "classifier.")  # also there as network.0. and network.1.
_SAVE_TENSORS = "save network.state_dict() with safetensors or torch.save instead"
# Plain values that people save with tensors: the options of a program, and numbers of numpy.
_HARMLESS: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    argparse.Namespace,
    np.dtype,
    *((np.float64().__reduce__()[0], f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    *(type(np.dtype(kind)) for kind in ("float64", "float32", "float16", "int64", "int32", "bool")),
]


def is_weights_file(name: str) -> bool:
    """Return whether this is the name of a weights file, not of a network."""
    return name.lower().endswith((".safetensors", *PICKLED))


def includes_weights(name: str) -> bool:
    """Return whether this is the name of a weights file or of a model folder, not of a network."""
    return is_weights_file(name) or (Path(name) / CONFIG).is_file()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, or of a .pt or .pth file that holds only tensors and plain values."""
    if not path.is_file():
        raise BadFile(f"no weights at {str(path)!r}: expected a .safetensors, .pt or .pth file; nothing is downloaded")
    name = path.name.lower()
    if name.endswith(".safetensors"):
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise BadFile(f"{str(path)!r} is not a complete safetensors file: {error}") from error
    if not name.endswith(PICKLED):
        raise BadFile(f"{str(path)!r}: expected .safetensors, .pt or .pth; formats that can run code are refused")
    weights = _state_dict(_read_pickled(path), path)
    _check_layouts(weights, path)
    held = path.stat().st_size
    for key, tensor in weights.items():
        if tensor.nbytes > held:  # one stored value can stand for billions
            raise BadFile(
                f"{str(path)!r}: {key} {tuple(tensor.shape)} has {tensor.nbytes:,} bytes, but the whole file has "
                f"{held:,}; save contiguous tensors"
            )
    return weights


def load_weights(network: nn.Module, weights: Mapping[str, Tensor], path: Path, classes: Sequence[str] = ()) -> None:
    """Load weights into a network, all of them or none."""
    _check_layouts(weights, path)
    own = network.state_dict()
    given = match_names(weights, own)
    missing = [key for key in own if key not in given and not key.endswith(_COUNTER)]
    extra = [key for key in given if key not in own and not key.endswith(_COUNTER)]
    if missing or extra:
        raise BadFile(
            f"{str(path)!r} does not fit {type(network).__name__}: "
            f"{len(missing)} tensors missing ({join_names(missing)}), {len(extra)} not expected ({join_names(extra)}); "
            "is it the right network?"
        )
    given = {key: given[key] for key in given if key in own}
    shapes = {key: (tuple(given[key].shape), tuple(own[key].shape)) for key in given}
    if wrong := {key: pair for key, pair in shapes.items() if pair[0] != pair[1]}:
        raise BadFile(_shape_message(wrong, path, classes))
    for key, tensor in given.items():
        if not key.endswith(_COUNTER) and not _converts(tensor.dtype, own[key].dtype):
            raise BadFile(
                f"{str(path)!r}: {key} is {_short(tensor.dtype)} in the file and {_short(own[key].dtype)} in the "
                "network; convert quantized weights to float32 first"
            )
    check_values(given, path)
    load_tensors(network, {**own, **given})


def check_outline(outline: Mapping[str, Tensor], weights: Mapping[str, Tensor], path: Path) -> None:
    """Refuse weights for a much larger network, before that is built: its config may be wrong or hostile."""
    needed, held = (sum(tensor.numel() for tensor in tensors.values()) for tensors in (outline, weights))
    if needed > 2 * held:
        raise BadFile(f"The config of {str(path)!r} describes {needed:,} numbers, but the file has {held:,}")


def load_tensors(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load tensors by the module's names, with the current versions of its layers.

    A plain dictionary has no versions, and torchvision's MNASNet takes it for the first version.
    """
    versioned = module.state_dict()
    versioned.clear()
    versioned.update(tensors)
    module.load_state_dict(versioned)


def count_classes(weights: Mapping[str, Tensor], network: nn.Module, head: Collection[str]) -> int | None:
    """Return the number of classes that weights predict, by the tensors of the head; None if those are absent."""
    given = match_names(weights, network.state_dict())
    return next((int(given[key].shape[0]) for key in head if key in given and given[key].ndim), None)


def _read_pickled(path: Path) -> object:
    entries: list[zipfile.ZipInfo] = []
    with suppress(zipfile.BadZipFile, OSError, ValueError), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    if any(entry.filename.endswith("constants.pkl") or "/code/" in entry.filename for entry in entries):
        raise BadFile(f"{str(path)!r} is a TorchScript or exported program, which can run code; {_SAVE_TENSORS}")
    if (unpacked := sum(entry.file_size for entry in entries)) > path.stat().st_size:  # torch.save does not compress
        raise BadFile(f"{str(path)!r} is compressed: {unpacked:,} bytes unpacked; {_SAVE_TENSORS}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for this call: torch warns about files that are refused below
            with torch.serialization.safe_globals(_HARMLESS):
                return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise BadFile(
            f"{str(path)!r} holds more than tensors (or is corrupt), and loading it could run code: {_SAVE_TENSORS}"
        ) from error
    except Exception as error:
        raise BadFile(f"{str(path)!r} is not a torch file, or is corrupt ({type(error).__name__}: {error})") from error


def _state_dict(loaded: object, path: Path) -> dict[str, Tensor]:
    held = loaded if isinstance(loaded, dict) else {}
    if _is_state_dict(held):
        return dict(held)
    nested = {key: value for key, value in held.items() if _is_state_dict(value)}
    names = list(nested) if len(nested) == 1 else [name for name in _NESTED if name in nested]
    if not names:
        got = ", ".join(map(str, held)) if isinstance(loaded, dict) else f"a {type(loaded).__name__}"
        raise BadFile(f"{str(path)!r}: expected named tensors, or one entry that holds them, got {got or 'nothing'}")
    return dict(nested[names[0]])


def _is_state_dict(value: object) -> bool:
    items = value.items() if isinstance(value, dict) else ()
    return bool(items) and all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in items)


def match_names(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights by the names of a network.

    Prefixes of wrappers (module., _orig_mod., model.) are removed if no name fits otherwise. Old names of torchvision
    and heads with another name are renamed.
    """
    given = {key: tensor for key, tensor in weights.items() if key != _AVERAGED or key in own}
    if all(any(key.startswith(prefix) for key in given) for prefix in _DOMAINBED):  # backbone and head, once each
        given = {key.removeprefix(_DOMAINBED[0]): t for key, t in given.items() if key.startswith(_DOMAINBED)}
    while not set(given) & set(own) and len({key.partition(".")[0] for key in given}) == 1:
        if any("." not in key for key in given):
            break
        given = {key.partition(".")[2]: tensor for key, tensor in given.items()}
    given = {key if key in own else _OLD_DENSENET.sub(r"\1\2.", key): tensor for key, tensor in given.items()}
    return _with_own_head(given, own)


def _with_own_head(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename a linear layer to the network's name if no other name differs: some call fc "linear"."""
    layers = []
    for some, others in ((own, given), (given, own)):
        alone = [key for key in some if key not in others and not key.endswith(_COUNTER)]
        layer, *more = {key.rpartition(".")[0] for key in alone} or {""}
        matrix = some.get(f"{layer}.weight")
        if more or matrix is None or matrix.ndim != 2:
            return dict(given)
        layers.append((f"{layer}.", matrix.shape[1]))
    (wanted, width), (there, inputs) = layers
    if width != inputs:
        return dict(given)
    return {wanted + key.removeprefix(there) if key.startswith(there) else key: t for key, t in given.items()}


def _shape_message(
    wrong: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]], path: Path, classes: Sequence[str]
) -> str:
    rows = "; ".join(f"{key}: {got} in the file, {want} in the network" for key, (got, want) in list(wrong.items())[:4])
    heads = [got[0] for got, want in wrong.values() if got[1:] == want[1:] and want[0] == len(classes)]
    if heads:
        return (
            f"{str(path)!r} predicts {heads[0]} classes, but {len(classes)} class names were given "
            f"({join_names(list(classes))}); pass the {heads[0]} names that it was trained with, in order ({rows})"
        )
    return f"{str(path)!r}: {len(wrong)} tensors have other shapes: {rows}; is it the right network?"


def _check_layouts(weights: Mapping[str, Tensor], path: Path) -> None:
    for key, tensor in weights.items():
        if tensor.is_meta or tensor.is_quantized or tensor.is_nested or tensor.layout != torch.strided:
            raise BadFile(
                f"{str(path)!r}: expected ordinary tensors, but {key} has no values, is quantized, nested or sparse"
            )


def _converts(given: torch.dtype, own: torch.dtype) -> bool:
    """Return whether the values of one type mean the same in the other."""
    return given in _FLOATS if own.is_floating_point else not (given.is_floating_point or given.is_complex)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_values(weights: Mapping[str, Tensor], path: Path) -> None:
    """Refuse tensors that no trained network has."""
    for key, tensor in weights.items():
        if not _converts(tensor.dtype, torch.float32) and not _converts(tensor.dtype, torch.int64):
            raise BadFile(f"{str(path)!r}: {key} is {_short(tensor.dtype)}; convert quantized weights to float32 first")
        if not tensor.isfinite().all():
            raise BadFile(f"{str(path)!r} has NaN or infinity in {key}; the training failed, or the file is corrupt")
        if key.endswith("running_var") and (tensor < 0).any():
            raise BadFile(f"{str(path)!r} has negative variances in {key}; the file is corrupt")


def join_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    return (", ".join(names[:6]) or "none") + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def digest_of_weights(network: nn.Module) -> str:
    """Return the SHA-256 of all weights, for a network that is not a checkpoint file."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()

"""`domainadaptor pack`: a checkpoint from your own weights, which says how they are used."""

from pathlib import Path
from typing import Annotated

from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import option
from domainadaptor.errors import BadOption

EXAMPLES = r"""
domainadaptor pack resnet18 --weights weights.pt --classes classes.txt \
    --size 64 --output mine.safetensors
"""


def pack(
    network: terminal.Network,
    weights: terminal.Weights = None,
    classes: terminal.Classes = None,
    size: terminal.Size = None,
    resize: options.Resize = None,
    crop_pct: options.CropPct = None,
    mean: options.Mean = None,
    std: options.Std = None,
    root: terminal.Root = None,
    output: Annotated[Path, option("FILE", "The checkpoint to write.")] = Path("checkpoint.safetensors"),
) -> None:
    """Make a checkpoint from your own weights.

    It also holds their class names and preprocessing: every other command takes the checkpoint in place of a network,
    without further options.
    """
    from domainadaptor.lab.networks.checkpoint import save_checkpoint
    from domainadaptor.lab.networks.inputs import InputOptions, read_classes
    from domainadaptor.lab.networks.loading import load_network
    from domainadaptor.lab.networks.weights import is_weights_file

    if output.suffix != ".safetensors":
        raise BadOption(f"--output {str(output)!r}: expected the name of a .safetensors file")
    if is_weights_file(network):
        raise BadOption(f"{network!r} is a file: pass the network's name and --weights {network}")
    terminal.check_weights(network, weights)
    names = () if classes is None else tuple(read_classes(classes))
    loaded = load_network(network, weights, InputOptions(resize, size, mean, std, names, crop_pct=crop_pct), root)
    save_checkpoint(output, loaded.to_checkpoint())
    shown = ", ".join(loaded.classes[:7]) + (" …" if len(loaded.classes) > 7 else "")
    terminal.print_text(f"{output}: {loaded.name}, {len(loaded.classes)} classes ({shown})")
    terminal.print_text(f"Preprocessing: {loaded.preprocessing_sentence()}.")
    terminal.show_notes(loaded.notes)
    terminal.print_text(f"Try it: domainadaptor predict {output} IMAGES")

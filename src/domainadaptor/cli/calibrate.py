"""`domainadaptor calibrate`: a checkpoint of a network with the statistics of unlabeled images."""

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer

from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import ADAPTATION, DATA, option
from domainadaptor.errors import BadFile, BadOption

if TYPE_CHECKING:  # it takes seconds to import
    from domainadaptor.adaptation.calibrate import Calibration

EXAMPLES = r"""
domainadaptor calibrate mine.safetensors new-images/
domainadaptor predict calibrated.safetensors more-images/ --method source
"""

_IMAGES = "A folder of images of the new domain, with any subfolders. 64 or more are best."
_SHARE = "Share of the new statistics, from 0 to 1. Default: set for each layer by how far it has shifted."
_SHOWN = 3  # layers


def calibrate(
    network: terminal.Network,
    images: Annotated[Path, typer.Argument(metavar="IMAGES", help=_IMAGES)],
    weights: terminal.Weights = None,
    classes: terminal.Classes = None,
    size: terminal.Size = None,
    resize: options.Resize = None,
    crop_pct: options.CropPct = None,
    mean: options.Mean = None,
    std: options.Std = None,
    root: terminal.Root = None,
    most: Annotated[int | None, option("N", "At most N images, chosen at random.", DATA, "--images", min=1)] = None,
    share: Annotated[float | None, option("SHARE", _SHARE, ADAPTATION, min=0, max=1)] = None,
    batch_size: terminal.BatchSize = 64,
    output: Annotated[Path, option("FILE", "The checkpoint to write.")] = Path("calibrated.safetensors"),
    seed: terminal.Seed = 0,
    device: terminal.Device = "auto",
    as_json: terminal.Json = False,
) -> None:
    """Write a network that is adapted to a folder of images, once.

    Writes a checkpoint of a plain network that costs what the source model costs and predicts single images. No labels
    are needed. Every other command takes it in place of a network, and its card says what it was calibrated on.

    The exit code is 5 if there are too few images.
    """
    from domainadaptor.adaptation.calibrate import FEW, FEWEST, Calibration
    from domainadaptor.lab.data.images import SUFFIXES, FolderImages
    from domainadaptor.lab.networks.calibrated import calibrated_checkpoint
    from domainadaptor.lab.networks.checkpoint import save_checkpoint
    from domainadaptor.lab.networks.inputs import InputOptions, read_classes
    from domainadaptor.lab.networks.loading import load_network

    _check_output(output, network)
    terminal.check_weights(network, weights)
    chosen = terminal.find_device(device)
    names = () if classes is None else tuple(read_classes(classes))
    loaded = load_network(network, weights, InputOptions(resize, size, mean, std, names, crop_pct=crop_pct), root)
    transform = loaded.preprocessing.transform()
    calibration = Calibration(loaded.network.to(chosen), share=share)
    given = FolderImages(images, transform, seed=seed, limit=most, batch_size=batch_size)
    with terminal.progress_bar(total=len(given), what="images") as bar:
        for batch in given:
            calibration.add(batch.to(chosen))
            bar.at(calibration.images, len(given))
    if not calibration.images:
        terminal.show_skipped(given.skipped.items())
        raise BadFile(f"None of the images in {str(images)!r} can be read; nothing was written")
    checkpoint = calibrated_checkpoint(loaded, calibration, share=share, folder=images.resolve().name)
    save_checkpoint(output, checkpoint)
    few = [FEW.format(images=calibration.images)] if calibration.images < FEWEST else []
    if as_json:
        found = {"output": str(output), "skipped": given.skipped, "notes": loaded.notes, "warnings": few}
        terminal.print_json({**found, **checkpoint.card.calibration})
    else:
        _show(output, loaded.name, calibration)
        terminal.show_notes(loaded.notes)
        terminal.show_skipped(given.skipped.items())
    terminal.show_warning("the predictions of this network", few)
    if few:
        raise typer.Exit(terminal.Exit.DOUBTFUL)
    if any(Path(name).suffix.lower() in SUFFIXES for name in given.skipped):
        raise typer.Exit(terminal.Exit.SOME_SKIPPED)


def _check_output(output: Path, network: str) -> None:
    if output.suffix != ".safetensors":
        raise BadOption(f"--output {str(output)!r}: expected the name of a .safetensors file")
    if not output.absolute().parent.is_dir():
        raise BadFile(f"No folder for --output {str(output)!r}; create it first")
    if output.resolve() == Path(network).resolve():
        raise BadOption(f"--output {str(output)!r} is the network itself; choose another name")


def _show(output: Path, network: str, calibration: "Calibration") -> None:
    layers = calibration.layers()
    shares = [100 * layer.share for layer in layers]
    farthest = sorted(layers, key=lambda layer: layer.shift, reverse=True)[:_SHOWN]
    terminal.print_text(f"{output}: {network}, calibrated on {terminal.count(calibration.images, 'image')}")
    terminal.print_text(
        f"New statistics: {fmean(shares):.0f} % on average over {terminal.count(len(shares), 'norm layer')}, "
        f"from {min(shares):.0f} to {max(shares):.0f} %"
    )
    terminal.print_text(f"Largest shifts: {', '.join(f'{layer.name} {layer.shift:.2f}' for layer in farthest)}")
    terminal.print_text(f"Try it: domainadaptor predict {output} IMAGES --method source")

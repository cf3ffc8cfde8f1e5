"""Checkpoints of calibrated networks, whose card says what they were calibrated on."""

import time
from dataclasses import replace

from pydantic import JsonValue

from domainadaptor import __version__
from domainadaptor.adaptation.calibrate import Calibration
from domainadaptor.lab.files import digest_of
from domainadaptor.lab.networks.checkpoint import Checkpoint
from domainadaptor.lab.networks.loading import LoadedNetwork

_DIGITS = 4


def calibrated_checkpoint(
    loaded: LoadedNetwork, calibration: Calibration, *, share: float | None = None, folder: str = ""
) -> Checkpoint:
    """Return a checkpoint of a calibrated network.

    Args:
        loaded: The network that was calibrated.
        calibration: What was measured.
        share: As it was given to `Calibration`.
        folder: Name of the folder with the images, without its path.
    """
    source = loaded.to_checkpoint()
    found: dict[str, JsonValue] = {
        "images": calibration.images,
        "folder": folder,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "version": __version__,
        "source": loaded.name if loaded.file is None else loaded.file.name,
        "source_sha256": "" if loaded.file is None else digest_of(loaded.file),
        "share": share,
        "layers": {
            layer.name: {"shift": round(layer.shift, _DIGITS), "share": round(layer.share, _DIGITS)}
            for layer in calibration.layers()
        },
    }
    # The metrics are those of the source model.
    return replace(
        source, card=replace(source.card, calibration=found, metrics={}), tensors=calibration.network().state_dict()
    )

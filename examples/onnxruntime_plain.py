"""Predict images with a file that `domainadaptor export` wrote, without torch: onnxruntime, numpy and Pillow alone.

python examples/onnxruntime_plain.py model.onnx photo1.jpg photo2.jpg ...

All images of a call are one batch, which the network adapts to. 16 or more images of several classes are best.
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image

FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


def pixels(path: str, how: dict) -> np.ndarray:
    """Return an image as the network expects it, (3, size, size)."""
    image = Image.open(path).convert("RGB")
    resize, size = how["resize"], how["size"]
    if how["squash"]:
        sides = (resize, resize)
    else:
        short = min(image.size)
        sides = tuple(resize if side == short else int(resize * side / short) for side in image.size)
    image = image.resize(sides, FILTERS[how["interpolation"]])
    left, top = (round((side - size) / 2) for side in image.size)
    values = np.asarray(image.crop((left, top, left + size, top + size)), dtype=np.float32) / 255
    return ((values - np.float32(how["mean"])) / np.float32(how["std"])).transpose(2, 0, 1)


def main(model: str, *paths: str) -> None:
    """Print the class of each image and the confidence in it."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    card = json.loads(session.get_modelmeta().custom_metadata_map["domainadaptor"])
    images = np.stack([pixels(path, card["preprocessing"]) for path in paths])
    (logits,) = session.run(["logits"], {"images": images})
    confidence = np.exp(logits - logits.max(1, keepdims=True))
    confidence /= confidence.sum(1, keepdims=True)
    for path, row in zip(paths, confidence, strict=True):
        print(f"{path}\t{card['classes'][row.argmax()]}\t{row.max():.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 2 else print(__doc__)

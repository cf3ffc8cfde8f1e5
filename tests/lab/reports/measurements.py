"""Made-up values of every measurement."""

import numpy as np

from tests.lab.reports.folder import CLASSES, LAYERS


def distances(rng):
    names = ("image-to-batch minimum", "image-to-batch maximum", "source-to-batch")
    return {name: round(rng.random(), 3) for name in names}


def variance(rng):
    return {"variance": round(rng.random(), 3), "layers": {layer: round(float(rng.random()), 3) for layer in LAYERS}}


def norms(rng):
    classes = zip(CLASSES, rng.integers(80, 900, 7).tolist(), strict=True)
    return {"classes": [{"name": name, "images": n, "norm": round(1 + n / 2000 + 0.05 * rng.random(), 3)}
                        for name, n in classes], "correlation": 0.8}  # fmt: skip


def losses(_rng):
    p = np.linspace(0.5, 0.999, 60)
    h = -p * np.log(p) - (1 - p) * np.log(1 - p)
    curves = [{"label": label, "confidence": p.tolist(), "loss": (k * h).tolist(),
               "gradient": (k * np.log((1 - p) / p)).tolist()}
              for label, k in (("EM", 1.0), ("GEM-T", 1.6), ("SLR", 2.2))]  # fmt: skip
    probabilities = {"plain": [0.95, 0.03, 0.02], "scaled": [0.7, 0.2, 0.1]}
    return {"curves": curves, "temperature": {"tau": 1.7, "images": 12, **probabilities}}


VALUES = {"statistics-distances": distances, "statistics-variance": variance, "classifier-norms": norms,
          "loss-curves": losses}  # fmt: skip

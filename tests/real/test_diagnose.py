"""The estimates of docs/diagnose.md, on a share of its development sets: CIFAR-10 without loss, corrupted."""

from itertools import product
from statistics import fmean

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.functional import to_tensor

import domainadaptor as da
from domainadaptor.adaptation.estimate import Answers, expect
from domainadaptor.lab.data.corruptions import corrupt
from domainadaptor.lab.networks.loading import load_network

IMAGES = 512
CONDITIONS = list(product(("gaussian_noise", "defocus_blur", "fog", "pixelate"), (1, 3, 5)))


@pytest.mark.slow
def test_estimates_and_sign_of_the_gain(data_root):
    if not (file := data_root / "cifar10" / "test.npz").is_file():
        pytest.skip(f"needs {file.name} of CIFAR-10")
    chosen = np.random.default_rng(0).permutation(10000)[:IMAGES]
    data, loaded = np.load(file), load_network("resnet20", "pretrained", root=data_root)
    pixels, labels = data["images"][chosen], torch.from_numpy(data["labels"][chosen].astype(int))
    right, errors = [], []
    for name, severity in CONDITIONS:
        corrupted = [
            to_tensor(corrupt(Image.fromarray(image), name, severity, constants="cifar", seed=at))
            for at, image in enumerate(pixels)
        ]
        adaptor, answers, correct = da.adapt(loaded.network), Answers(), []
        images = loaded.preprocessing.normalized(torch.stack(corrupted))
        for batch, known in zip(images.split(64), labels.split(64), strict=True):
            both = adaptor.source_logits(batch), adaptor(batch)
            answers.add(*both)
            correct.append(torch.stack([logits.argmax(1) == known for logits in both]).float())
        before, after = torch.cat(correct, 1)
        gain, noise = float((after - before).mean()), 2 * float((after - before).std()) / IMAGES**0.5
        found = expect(answers.signals())
        right.append(found.outcome == ("better" if gain > noise else "worse" if gain < -noise else "same"))
        errors += [abs(found.before.value - float(before.mean())), abs(found.after.value - float(after.mean()))]
    assert sum(right) >= 11
    assert fmean(errors) < 0.03

"""A small experiment on small pictures, and its records."""

import torch

from domainadaptor.lab.experiments.runner import Runner
from domainadaptor.lab.experiments.spec import read_experiment
from domainadaptor.lab.experiments.sweep import RunProgress, Sweep

TEXT = """
title = "Small"
[networks.mine]
checkpoint = "{base}/mine.safetensors"
[networks.absent]
train = {{ dataset = "pacs", network = "resnet20" }}
[rows."untouched"]
method = "source"
[rows."Tent"]
method = "tent"
lr = 0.05
predict = "after"
[[table]]
title = "One"
dataset = "folders"
network = "mine"
domains = ["night", "dusk"]
batch_size = 10
"""

SILENT = RunProgress()


def sweep_of(base, text=TEXT, root="pictures"):
    path = base / "small.toml"
    path.write_text(text.format(base=base))
    runner = Runner(base / root, base / "images", torch.device("cpu"))
    return Sweep(read_experiment(path, base / "runs", dataset=runner.dataset), runner)

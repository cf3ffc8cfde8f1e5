"""A small experiment on small pictures, and its records."""

import json

import torch

from domainadaptor.lab.experiments.runner import Workshop
from domainadaptor.lab.experiments.spec import read_experiment
from domainadaptor.lab.experiments.sweep import Grid, Watcher

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

SILENT = Watcher(lambda *_: None, lambda *_: None, lambda *_: None)


def grid_of(base, text=TEXT, root="pictures"):
    path = base / "small.toml"
    path.write_text(text.format(base=base))
    workshop = Workshop(base / root, base / "images", torch.device("cpu"))
    return Grid(read_experiment(path, base / "runs", dataset=workshop.dataset), workshop)


def records_of(store):
    return {path.stem: json.loads(path.read_text()) for path in (store.folder / "records").glob("*.json")}

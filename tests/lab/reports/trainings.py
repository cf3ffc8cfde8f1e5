"""Made-up records of training runs."""

import json

from domainadaptor.lab.records.store import parse
from tests.lab.reports.folder import ENVIRONMENT

RECIPE = {
    "dataset": "pacs", "network": "cifar:resnet20", "weights": "pretrained", "select": "best", "norm": "batch",
    "size": 64, "epochs": 2, "batch_size": 32, "lr": 0.1, "head_lr": 1.0, "momentum": 0.9, "weight_decay": 0.0,
    "schedule": "cosine", "warmup": 0.0, "head_bias": True, "precision": "float32",
}  # fmt: skip


def training(target, accuracy, seed=0, algorithm="erm", sources=("a", "b"), name="", **recipe):
    epoch = {"lr": 0.1, "loss": 1.0, "accuracy": 50.0, "images_per_second": 9.0}
    more = {"algorithm": algorithm, "sources": list(sources), "seed": seed, **recipe}
    return parse(json.dumps({
        "kind": "training", "format": 2, "name": name or f"{algorithm}-{'+'.join(sources)}-{seed}",
        "recipe": {**RECIPE, **more}, "started_from": "pretrained", "note": "for research only", "splits": "",
        "images": {"a": 1, "b": 1, "c": 1}, "skipped": {}, "unreadable": [], "chosen": "last",
        "source_validation": {"accuracy": 90.0, "loss": 0.1, "domains": {}},
        "target_accuracy": {target: accuracy} if target else {}, "seconds": 960.0, "seconds_of_this_process": 960.0,
        "epochs": [{"epoch": at, "seconds": s, **epoch} for at, s in ((1, 900.0), (2, 60.0))],  # a pause in the first
        "statistics_variance": {}, "environment": ENVIRONMENT,
        "command": f"domainadaptor train pacs --algorithm {algorithm}",
    }))  # fmt: skip


RECORDS = [training("c", 50.0), training("c", 60.0, seed=1), training("b", 40.0, sources=("a", "c")),
           training("c", 70.0, algorithm="mldg"), training("b", 30.0, sources=("a",))]  # fmt: skip

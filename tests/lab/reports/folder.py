"""A folder as `run` leaves it: made-up answers of a made-up network, counted as real ones are."""

import hashlib
import json
from functools import partial

import numpy as np

from domainadaptor.lab.reports.records import read_results
from domainadaptor.lab.reports.views import ask_for

CLASSES = ["dog", "elephant", "giraffe", "guitar", "horse", "house", "person"]
DOMAINS = ["art_painting", "cartoon", "photo", "sketch"]
LAYERS = [f"layer{stage}.{block}.bn{at}" for stage in (1, 2, 3) for block in (0, 1, 2) for at in (1, 2)]
START = {"art_painting": 0.62, "cartoon": 0.66, "photo": 0.84, "sketch": 0.55}  # of the untouched network
GAIN = {
    "source": 0.0, "adabn": 0.03, "tent": 0.04, "slr": 0.05, "lame": -0.01, "adamixbn": 0.06, "domainadaptor-t": 0.08,
    "domainadaptor-aug": 0.09,
}  # fmt: skip
COST = {"source": 1.0, "adabn": 1.1, "lame": 1.2, "adamixbn": 1.25, "tent": 3.4, "slr": 3.5, "domainadaptor-t": 4.2,
        "domainadaptor-aug": 6.0}  # fmt: skip
ENVIRONMENT = {"domainadaptor": "0.1.0", "torch": "2.10.0", "python": "3.12.1", "device": "cpu", "threads": 2,
               "machine": "x86_64", "processor": "AMD EPYC"}  # fmt: skip


def checksum(record):
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


class Folder:
    """Writes records and plans; everything random follows from a record's own settings."""

    def __init__(self, path, images=256, name_of=lambda domain, label, at: f"{CLASSES[label]}/{at}.jpg"):
        self.path = path
        self.name_of = name_of
        self.images = images
        (path / "records").mkdir(parents=True)
        (path / "plans").mkdir()

    def write(self, record):
        record = {**record, "checksum": checksum(record)}
        (self.path / "records" / f"{record['id']}.json").write_text(json.dumps(record))
        return record

    def plan(self, name, tables, **more):
        plan = {
            "kind": "plan", "format": 1, "name": name, "title": name.replace("-", " ").capitalize(), "about": "",
            "file": f"{name}.toml", "command": f"domainadaptor run experiments/{name}.toml", "remarks": [],
            "tables": tables, **more,
        }  # fmt: skip
        (self.path / "plans" / f"{name}.json").write_text(json.dumps(plan))
        return plan

    def record(
        self, domains, method="source", seed=0, *, gain=None, options=None, batch_size=64, segments=None, **more
    ):
        run = {
            "dataset": "pacs", "data_options": {}, "data": "ab12cd34", "domains": list(domains),
            "checkpoint": {
                "name": "testbed", "sha256": f"{seed:064x}", "network": "cifar:resnet20", "size": 64, "seed": seed,
                "command": f"domainadaptor train pacs --target {domains[0]} --size 64 --seed {seed}",
                "sources": [domain for domain in DOMAINS if domain not in domains], "note": "",
            },
            "method": method, "options": options or {}, "protocol": "continual" if segments else "leave-one-out",
            "protocol_options": {}, "batch_size": batch_size, "images": self.images, "order": 0, "seed": seed,
        }  # fmt: skip
        name = hashlib.sha256(json.dumps([run, gain], sort_keys=True).encode()).hexdigest()[:16]
        rng = np.random.default_rng(int(name, 16))
        gain = GAIN.get(method, 0.0) if gain is None else gain
        plain = method == "source"
        scores = {
            domain: score(rng, self.images, START.get(domain, 0.6), gain, plain, partial(self.name_of, domain))
            for domain in domains
        }
        batches = sum(-(-self.images // batch_size) for _ in domains)
        took = batches * 0.05 * (1 + 0.02 * rng.random())
        return {
            "kind": "evaluation", "format": 1, "id": name, "run": run,
            "command": f"domainadaptor evaluate testbed pacs --target {domains[0]} --method {method} --seed {seed}",
            "images": dict.fromkeys(domains, self.images), "skipped": {}, "classes": CLASSES, "scores": scores,
            "segments": [
                {"name": domain, "fresh": at == 0 or not segments, "images": s["images"], "right": s["right"],
                 "source_right": s["source_right"]}
                for at, (domain, s) in enumerate(scores.items())
            ],
            "alpha": alphas(rng, domains[0]) if method.startswith(("adamix", "domainadaptor")) else {},
            "seconds": {"batches": batches, "images": self.images * len(domains),
                        "adapting": round(took * COST.get(method, 1.0), 4), "plain": round(took, 4)},
            "memory": round(20 + 30 * COST.get(method, 1.0), 1), "fell_back": 0, "notes": [],
            "environment": ENVIRONMENT, "finished": f"2026-01-0{seed + 1}T12:00:00Z", **more,
        }  # fmt: skip

    def cell(self, domain, method, seeds=(0, 1, 2), keep=True, **more):
        """The records of a cell, written or only planned: their ids and commands."""
        records = [self.record([domain], method, seed, **more) for seed in seeds]
        for record in records if keep else []:
            self.write(record)
        return [record["id"] for record in records], [record["command"] for record in records]

    def row(self, label, method, columns=DOMAINS, paper=None, group="", **more):
        cells = {domain: self.cell(domain, method, **more) for domain in columns}
        return {
            "label": label, "paper": paper, "group": group,
            "cells": {domain: ids for domain, (ids, _) in cells.items()},
            "commands": {domain: commands for domain, (_, commands) in cells.items()},
        }  # fmt: skip

    def measurement(self, measure, values, domain="sketch", sources=(), **more):
        run = {"dataset": "pacs", "data": "ab12cd34", "domains": [domain], "measure": measure, "options": {}, "seed": 0,
               "checkpoint": {"name": "testbed", "network": "cifar:resnet20", "size": 64, "sources": list(sources)}
               }  # fmt: skip
        name = hashlib.sha256(json.dumps([run, values], sort_keys=True).encode()).hexdigest()[:16]
        return self.write(
            {
                "kind": "measurement", "format": 1, "id": name, "run": run,
                "command": f"domainadaptor evaluate --measure {measure}", "values": values,
                "environment": ENVIRONMENT, "finished": "2026-01-01T12:00:00Z", **more,
            }
        )["id"]  # fmt: skip


def asked(made, planned):
    """What a show of one planned table is asked."""
    made.plan("x", [planned])
    results = read_results(made.path)
    assert not results.damaged
    return ask_for(results.plans[0].tables[0], "x", results)


def table(title, rows, columns=DOMAINS, **more):
    return {"title": title, "sample": "full test sets, 3 seeds, batches of 64", "show": "accuracy", "corner": "method",
            "columns": list(columns), "mean": True, "paper": None, "rows": rows, **more}  # fmt: skip


def score(rng, images, start, gain, plain, name_of):
    """Answers of a source and of an adapted network, image by image, and all counts that a record keeps."""
    labels = rng.integers(len(CLASSES), size=images)
    source = np.where(rng.random(images) < start, labels, rng.integers(len(CLASSES), size=images))
    better, worse = rng.random(images) < max(0.0, gain) * 2 + 0.05, rng.random(images) < 0.04 + max(0.0, -gain) * 2
    adapted = np.where(better, labels, np.where(worse, rng.integers(len(CLASSES), size=images), source))
    adapted = source if plain else adapted
    sure = [np.clip(rng.normal(0.75, 0.15, images), 1 / 7, 0.9999) for _ in range(2)]
    changed = np.flatnonzero(source != adapted)
    return {
        "images": images, "source_right": int((source == labels).sum()),
        "before_right": int((adapted == labels).sum()),
        "right": int((adapted == labels).sum()), "confusion": counted(labels, adapted),
        "source_confusion": counted(labels, source),
        "better": int(((adapted == labels) & (source != labels)).sum()),
        "worse": int(((adapted != labels) & (source == labels)).sum()), "changed": len(changed),
        "calibration": binned(sure[1], adapted == labels), "source_calibration": binned(sure[0], source == labels),
        "examples": [
            {"name": name_of(labels[at], int(at)), "label": int(labels[at]), "source": int(source[at]),
             "adapted": int(adapted[at]), "source_confidence": round(float(sure[0][at]), 4),
             "confidence": round(float(sure[1][at]), 4)}
            for at in changed[:12]
        ],
    }  # fmt: skip


def counted(labels, answers):
    matrix = np.zeros((len(CLASSES), len(CLASSES)), dtype=int)
    np.add.at(matrix, (labels, answers), 1)
    return matrix.tolist()


def binned(sure, right):
    at = np.minimum((sure * 15).astype(int), 14)
    return [[int((at == b).sum()), round(float(sure[at == b].sum()), 6), int(right[at == b].sum())] for b in range(15)]


def alphas(rng, domain):
    slope = {"sketch": -0.25, "photo": 0.1}.get(domain, -0.1)
    return {layer: round(0.6 + slope * at / len(LAYERS) + 0.04 * rng.normal(), 6) for at, layer in enumerate(LAYERS)}


def whole_folder(path, **more):
    """Every show, the paper's numbers, gaps, failures and damage: as large as a real report is varied."""
    made = Folder(path, **more)
    methods = [("DeepAll", "source", "deepall", "not adapted"), ("AdaBN", "adabn", "adabn", "adapted once"),
               ("SLR", "slr", "slr", "adapted once"), ("Tent", "tent", "tent", "adapted once"),
               ("LAME", "lame", "lame", "adapted once"), ("AdaMixBN", "adamixbn", None, "ours"),
               ("DomainAdaptor-T", "domainadaptor-t", "domainadaptor-t", "ours"),
               ("DomainAdaptor-Aug", "domainadaptor-aug", "domainadaptor-aug", "ours")]  # fmt: skip
    rows = [made.row(label, method, paper=paper, group=group) for label, method, paper, group in methods]
    made.plan(
        "comparison",
        [table("PACS at 64x64, ResNet-20", rows,
               paper={"table": "comparison", "backbone": "resnet18", "columns": {"mean": "PACS"}})],
        title="Comparison with other methods",
        about="Every method on the *same* checkpoints. `source` is the network itself; see **Remarks**.",
        remarks=["ResNet-20 at 64x64, trained on a CPU: **absolute** accuracies are below the paper's.",
                 "Tent is reset before each batch, as in the paper's first block."],
    )  # fmt: skip
    trained = [made.row(f"MLDG + {label}", method, paper=f"mldg+{paper}", options={"base": "mldg"})
               for label, method, paper in (("none", "source", "none"), ("T", "domainadaptor-t", "domainadaptor-t"),
                                            ("Aug", "domainadaptor-aug", "domainadaptor-aug"))]  # fmt: skip
    late = made.row("MLDG + SKD", "domainadaptor-skd", paper="mldg+domainadaptor-skd", keep=False)
    broken = made.row("FSDCL + T", "domainadaptor-t", ["sketch"], paper="fsdcl+domainadaptor-t", keep=False, gain=0.2)
    failing = [made.record(["sketch"], "domainadaptor-t", seed, gain=0.2) for seed in range(3)]
    for record in failing:
        kept = {k: v for k, v in record.items() if k not in ("scores", "segments", "alpha", "seconds", "memory")}
        made.write({**kept, "failed": "not enough memory: 64 images of 64x64 need 3.2 GB, 1.9 GB are free"})
    made.plan("trained-models", [
        table("Models that were trained otherwise", [*trained, late, broken],
              paper={"table": "trained-models", "backbone": "resnet18", "columns": {}})],
        title="On top of other ways of training")  # fmt: skip
    sizes = ["1", "2", "4", "8", "16", "32", "64", "128"]
    curves = []
    for label, method in (
        ("DeepAll", "source"),
        ("AdaBN", "adabn"),
        ("Tent", "tent"),
        ("DomainAdaptor-T", "domainadaptor-t"),
    ):
        cells = {}
        for at, size in enumerate(sizes):
            drop = 0 if method == "source" else -0.3 / (at + 1) ** 1.5
            cells[size] = [
                [made.write(made.record([domain], method, seed, batch_size=int(size), gain=GAIN[method] + drop))["id"]
                 for domain in ("sketch", "cartoon")]
                for seed in (0, 1)
            ]  # fmt: skip
        curves.append({"label": label, "paper": None, "group": "", "cells": cells, "commands": {}})
    alphas_ = ["0.5", "0.6", "0.7", "0.8", "0.9", "0.99", "dynamic"]
    cells = {a: made.cell("photo", "adamixbn", (0, 1), options={"alpha": "code" if a == "dynamic" else float(a)},
                          gain=0.05)[0] for a in alphas_}  # fmt: skip
    made.plan("curves", [
        table("Batch size", curves, sizes, show="accuracy-curve", mean=False, sample="sketch and cartoon, 2 seeds"),
        table("Fixed alpha", [{"label": "PACS", "paper": "PACS", "group": "", "cells": cells}], alphas_,
              show="accuracy-curve", mean=False, corner="data set",
              paper={"table": "fixed-alpha", "backbone": "resnet18"})], title="Batch size and alpha")  # fmt: skip
    times = [made.row(label, method, ["art_painting"], paper=paper) for label, method, paper in (
        ("Non-adapted", "source", "none"), ("AdaBN", "adabn", "adabn"), ("LAME", "lame", "lame"), ("SLR", "slr", "slr"),
        ("Tent", "tent", "tent"), ("AdaMixBN", "adamixbn", "adamixbn"),
        ("DomainAdaptor-T", "domainadaptor-t", "domainadaptor-t"))]  # fmt: skip
    made.plan("time", [table("Time of a batch of 64", times, ["art_painting"], show="time", mean=False,
                             paper={"table": "time", "backbone": "resnet18"}),
                       table("Everything else", rows, show="details")],
              title="Time, memory and calibration")  # fmt: skip
    made.plan("alpha", [table("AdaMixBN on PACS", [made.row("AdaMixBN", "adamixbn")], show="alpha")],
              title="Alpha by depth")  # fmt: skip
    continual = [
        {
            "label": label,
            "cells": {"PACS": [made.write(made.record(DOMAINS, method, seed, segments=True))["id"] for seed in (0, 1)]},
        }
        for label, method in (("Tent (online)", "tent"), ("DomainAdaptor-T", "domainadaptor-t"))
    ]
    made.plan("continual", [table("One domain after the other", continual, ["PACS"], show="segments", mean=False)],
              title="Continual adaptation")  # fmt: skip
    rng = np.random.default_rng(0)
    distances = {d: [made.measurement("statistics-distances", {
        "image-to-batch minimum": round(0.01 * rng.random(), 4), "image-to-batch maximum": round(3 * rng.random(), 3),
        "source-to-batch": round(rng.random(), 3)}, d)] for d in DOMAINS}  # fmt: skip
    variances = {d: [made.measurement("statistics-variance", {
        "variance": round(rng.random(), 3), "layers": {layer: round(float(rng.random()), 3) for layer in LAYERS}}, d)]
        for d in ("PACS", "VLCS")}  # fmt: skip
    norms = {d: [made.measurement("classifier-norms", {"classes": [
        {"name": name, "images": int(n), "norm": round(1 + n / 2000 + 0.05 * rng.random(), 3)}
        for name, n in zip(CLASSES, rng.integers(80, 900, 7), strict=True)], "correlation": 0.8}, d)]
        for d in ("sketch", "photo")}  # fmt: skip
    p = np.linspace(0.5, 0.999, 60)
    h = -p * np.log(p) - (1 - p) * np.log(1 - p)
    losses = [made.measurement("loss-curves", {"curves": [
        {"label": label, "confidence": p.tolist(), "loss": (k * h).tolist(),
         "gradient": (k * np.log((1 - p) / p)).tolist()}
        for label, k in (("entropy", 1.0), ("GEM-T", 1.6), ("SLR", 2.2))]})]  # fmt: skip
    made.plan("statistics", [
        table("Distances", [{"label": "distances", "cells": distances}], show="statistics-distances", corner="distance",
              paper={"table": "statistics-distances", "backbone": "resnet18"}),
        table("Variance", [{"label": "variance", "cells": variances}], ["PACS", "VLCS"], show="statistics-variance",
              mean=False, paper={"table": "statistics-variance", "backbone": "resnet18"}),
        table("Norms of the classifier", [{"label": "norms", "cells": norms}], ["sketch", "photo"],
              show="classifier-norms", mean=False),
        table("Losses", [{"label": "losses", "cells": {"all": losses}}], ["all"], show="loss-curves", mean=False),
        table("From another version", [], show="pie-chart")], title="Statistics and losses")  # fmt: skip
    (path / "records" / "broken.json").write_text('{"kind": "evaluation", ')
    return made

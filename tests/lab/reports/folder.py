"""A results folder of made-up answers of a made-up network, counted and validated as real records are."""

import json

import numpy as np

from domainadaptor.lab.records.measurements import VALUES
from domainadaptor.lab.records.plans import Plan, PlannedRow, PlannedRun, PlannedTable
from domainadaptor.lab.records.store import Store, parse
from domainadaptor.lab.reports.sections import show
from domainadaptor.lab.reports.selection import TableRecords

CLASSES = ["dog", "elephant", "giraffe", "guitar", "horse", "house", "person"]
DOMAINS = ["art_painting", "cartoon", "photo", "sketch"]
LAYERS = [f"layer{stage}.{block}.bn{at}" for stage in (1, 2, 3) for block in (0, 1, 2) for at in (1, 2)]
START = {"art_painting": 0.62, "cartoon": 0.66, "photo": 0.84, "sketch": 0.55}  # accuracy of the source model
GAIN = {"source": 0.0, "adabn": 0.03, "tent": 0.04, "slr": 0.05, "lame": -0.01, "adamixbn": 0.06,
        "domainadaptor-t": 0.08, "domainadaptor-aug": 0.09}  # fmt: skip
COST = {"source": 1.0, "adabn": 1.1, "lame": 1.2, "adamixbn": 1.25, "tent": 3.4, "slr": 3.5, "domainadaptor-t": 4.2,
        "domainadaptor-aug": 6.0}  # fmt: skip
ENVIRONMENT = {"domainadaptor": "0.1.0", "torch": "2.10.0", "python": "3.12.1", "device": "cpu", "threads": 2,
               "machine": "x86_64", "processor": "AMD EPYC"}  # fmt: skip


class Folder:
    """Makes records and plans; everything random follows from a record's own settings."""

    def __init__(self, path, images=256):
        self.path, self.images = path, images
        self.records, self.plans = {}, []

    def save(self):
        with Store(self.path) as store:
            store.write(*self.records.values(), *self.plans)
        return self

    def add(self, record):
        self.records[record.id] = record
        return record

    def plan(self, name, tables, **more):
        title = name.replace("-", " ").capitalize()
        content = {"title": title, "command": f"domainadaptor run experiments/{name}.toml", **more}
        self.plans.append(Plan(name=name, tables=tuple(tables), **content))
        return self.plans[-1]

    def record(self, domains, method="source", seed=0, *, gain=None, options=None, batch_size=64, stream=False, **more):
        given = {**(options or {}), **({} if gain is None else {"gain": gain})}
        run = settings(domains, seed) | {
            "method": method, "options": given, "protocol": "continual" if stream else "leave-one-out",
            "batch_size": batch_size, "images": self.images,
        } | more.pop("run", {})  # fmt: skip
        rng = np.random.default_rng(list(json.dumps(run).encode()))
        gain = GAIN.get(method, 0.0) if gain is None else gain
        scores = {
            domain: score(rng, self.images, START.get(domain, 0.6), gain, method == "source") for domain in domains
        }
        batches = len(domains) * -(-self.images // batch_size)
        took = batches * 0.05 * (1 + 0.02 * rng.random())
        adapting = round(took * COST.get(method, 1.0), 4)
        return made_record({
            "kind": "evaluation", "run": run, "images": dict.fromkeys(domains, self.images), "classes": CLASSES,
            "command": f"domainadaptor evaluate testbed pacs --target {domains[0]} --method {method} --seed {seed}",
            "scores": scores,
            "segments": [
                {"name": domain, "fresh": at == 0 or not stream,
                 **{k: s[k] for k in ("images", "right", "source_right")}}
                for at, (domain, s) in enumerate(scores.items())
            ],
            "alpha": alphas(rng, domains[0]) if method.startswith(("adamix", "domainadaptor")) else {},
            "seconds": {"batches": batches, "images": self.images * len(domains), "adapting": adapting,
                        "compared": {"batches": batches, "adapting": adapting, "plain": round(took, 4)}},
            "memory": round(20 + 30 * COST.get(method, 1.0), 1), "finished": f"2026-01-0{seed + 1}T12:00:00Z", **more,
        })  # fmt: skip

    def measurement(self, measure, values, domain="sketch", sources=()):
        run = settings([domain], 0) | {"measure": measure, "batch_size": 64}
        run["checkpoint"]["sources"] = list(sources)
        return self.add(made_record({"kind": "measurement", "run": run, "values": values,
                                     "command": f"domainadaptor evaluate --measure {measure}"}))  # fmt: skip

    def row(self, label, method, columns=DOMAINS, seeds=(0, 1, 2), keep=True, paper=None, group="", **more):
        """A planned row, with its records unless they are only planned."""
        records = {c: [self.record([c], method, seed, **more) for seed in seeds] for c in columns}
        for record in (record for own in records.values() for record in own if keep):
            self.add(record)
        return planned_row(label, {c: [[record] for record in own] for c, own in records.items()}, paper, group)


def settings(domains, seed):
    return {
        "dataset": "pacs", "data": "ab12cd34", "domains": list(domains), "order": 0, "seed": seed,
        "checkpoint": {
            "name": "testbed", "sha256": f"{seed:064x}", "network": "cifar:resnet20", "size": 64, "seed": seed,
            "command": f"domainadaptor train pacs --target {domains[0]} --size 64 --seed {seed}",
            "sources": [domain for domain in DOMAINS if domain not in domains],
        },
    }  # fmt: skip


def made_record(content):
    more = {"format": 2, "environment": ENVIRONMENT, "finished": "2026-01-01T12:00:00Z"}
    return parse(json.dumps({**more, **content}))


def changed(record, **parts):
    """The same record with other parts; nested ones are named with two underscores."""
    content = json.loads(record.to_json())
    for name, value in parts.items():
        *path, last = name.split("__")
        place = content
        for step in path:
            place = place[step]
        place[last] = value
    return parse(json.dumps(content))


def failing(record, reason):
    kept = ("kind", "format", "run", "command", "environment", "finished")
    content = {name: value for name, value in json.loads(record.to_json()).items() if name in kept}
    return parse(json.dumps({**content, "failed": reason}))


def planned_row(label, cells, paper=None, group=""):
    """A row from records, or from runs that are planned only; columns -> seeds -> records."""
    runs = {
        column: tuple(tuple(r if isinstance(r, PlannedRun) else PlannedRun(id=r.id, command=r.command) for r in seed)
                      for seed in seeds)
        for column, seeds in cells.items()
    }  # fmt: skip
    return PlannedRow(label=label, cells=runs, paper=paper, group=group)


def table(title, rows, columns=DOMAINS, **more):
    content = {"sample": "full test sets, 3 seeds, batches of 64", "mean": True, **more}
    return PlannedTable(title=title, rows=tuple(rows), columns=tuple(columns), **content)


def selected(made, planned, kind="evaluation"):
    return TableRecords(planned, "x", made.records, kind)


def score(rng, images, start, gain, is_source):
    """Answers of a source model and of an adapted network, image by image, and all counts that a record keeps."""
    labels = rng.integers(len(CLASSES), size=images)
    source = np.where(rng.random(images) < start, labels, rng.integers(len(CLASSES), size=images))
    better, worse = rng.random(images) < max(0.0, gain) * 2 + 0.05, rng.random(images) < 0.04 + max(0.0, -gain) * 2
    adapted = np.where(better, labels, np.where(worse, rng.integers(len(CLASSES), size=images), source))
    adapted = source if is_source else adapted
    sure = [np.clip(rng.normal(0.75, 0.15, images), 1 / 7, 0.9999) for _ in range(2)]
    different = np.flatnonzero(source != adapted)
    right = int((adapted == labels).sum())
    return {
        "images": images, "source_right": int((source == labels).sum()), "before_right": right, "right": right,
        "confusion": counted(labels, adapted), "source_confusion": counted(labels, source),
        "better": int(((adapted == labels) & (source != labels)).sum()),
        "worse": int(((adapted != labels) & (source == labels)).sum()), "changed": len(different),
        "calibration": binned(sure[1], adapted == labels), "source_calibration": binned(sure[0], source == labels),
        "examples": [
            {"name": f"{CLASSES[labels[at]]}/{at}.jpg", "label": int(labels[at]), "source": int(source[at]),
             "adapted": int(adapted[at]), "source_confidence": round(float(sure[0][at]), 4),
             "confidence": round(float(sure[1][at]), 4)}
            for at in different[:12]
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


def shown(made, planned):
    """The view of a table."""
    kind = planned.show if planned.show in VALUES else "evaluation"
    return show(selected(made, planned, kind))


def texts(printed):
    return {line.label: dict(zip(printed.columns, line.cells, strict=True)) for line in printed.lines}

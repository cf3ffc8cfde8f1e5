"""A small experiment for the tests of `run`, and its records."""

import sqlite3

from domainadaptor.lab.records.store import Store

TEXT = """
title = "Small"
[networks.mine]
checkpoint = "none/{target}.safetensors"
[rows."untouched"]
method = "source"
[rows."AdaBN"]
method = "adabn"
[[table]]
title = "One"
dataset = "folders"
network = "mine"
domains = ["night"]
"""


def records(base):
    with Store(base / "results", readonly=True) as store:
        return store.runs()


def plan(base, name="small"):
    with Store(base / "results", readonly=True) as store:
        return store.plan(name)


def change(base, statement):
    db = sqlite3.connect(base / "results" / "results.sqlite")
    db.execute(statement)
    db.commit()
    db.close()


ONE = "id = (SELECT MIN(id) FROM entries WHERE kind = 'evaluation')"


def arguments(base, *more):
    return ["run", "experiments/small.toml", "--root", str(base / "pictures"), "--device", "cpu", *more]


OWN = ["--checkpoint", "mine={target}.safetensors"]

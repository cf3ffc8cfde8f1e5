"""What `make test-load` measured: kept in docs/service.json, shown in docs/service.md."""

import json
import time
from pathlib import Path
from typing import Any

import torch

from domainadaptor.lab.environment import environment

CLONE = Path(__file__).parents[2]
NUMBERS, DOCUMENT = CLONE / "docs" / "service.json", CLONE / "docs" / "service.md"
BEGIN, END = "<!-- measured: `make test-load` writes this part -->\n", "<!-- end of the measured part -->\n"
COMMAND = "make test-load"
FIGURES = {
    "14 holds": "80 % of capacity for 10 minutes: p99 at most 3 times the unloaded median; nothing lost, doubled or "
    "mixed; memory +5 % at most",
    "15 degrades": "3 times capacity for 2 minutes: 200, or 429 or 503 within a second; normal in 10 s",
    "16 hostile clients": "200 slow connections cut within 30 s, p99 of others within 1.5 times; oversize 413, wrong "
    "type 415, malformed 400, in bounded memory",
    "17 isolation": "1,000 requests byte-identical alone and among 16 tenants, poisoned and crashing ones included; "
    "streams too",
    "18 poison": "accuracy of clean images at 0, 5, 10 and 20 % hostile images in their batch, published",
    "19 no escape": "1,000 fuzzed names, paths and headers: nothing outside, no outgoing connection",
    "kill -9 of a worker": "the others continue, a new one is started, its streams are gone with 410, no wrong answer",
    "overhead": "a request of 64 images: at most 1.10 times decoding and the same call in Python",
}


def record(name: str, **entry: Any) -> None:
    """Keep a measurement in place of an earlier one, and show it.

    Args:
        name: One of FIGURES, or "layouts".
        **entry: `measured`, in words, and whether it `holds`; and the numbers.
    """
    found = json.loads(NUMBERS.read_text()) if NUMBERS.is_file() else {}
    made = environment(torch.device("cpu"))
    kept = {key: made[key] for key in ("processor", "commit", "torch", "python")}
    found[name] = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "command": COMMAND, **kept, **entry}
    NUMBERS.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    DOCUMENT.write_text(before + BEGIN + shown(found) + END + rest.partition(END)[2], encoding="utf-8")


def shown(found: dict[str, Any]) -> str:
    """Return the measured part of the document."""
    if not found:
        return f"\nNot measured yet: `{COMMAND}` does it.\n\n"
    machines = sorted({f"{e['processor']}, torch {e['torch']}, {e['date']}, `{e['command']}`" for e in found.values()})
    lines = [
        "",
        *(f"{machine}." for machine in machines),
        *_promises(found),
        *_loads(found),
        *_poison(found),
        *_layouts(found),
        "",
    ]
    return "\n".join(lines) + "\n"


def _promises(found: dict[str, Any]) -> list[str]:
    rows = [
        f"| {name} | {figure} | {found[name]['measured']} | {'yes' if found[name]['holds'] else 'no'} |"
        for name, figure in FIGURES.items()
        if name in found
    ]
    return ["", "| promise | figure | measured | holds |", "|---|---|---|---|", *rows]


def _loads(found: dict[str, Any]) -> list[str]:
    if "loads" not in found.get("14 holds", {}):
        return []
    rows = found["14 holds"]["loads"]
    until = next((at for at, row in enumerate(rows) if row["ratio"] > 3), len(rows))
    held = f"up to {100 * rows[until - 1]['share']:.0f} % of capacity" if until else "at none of these loads"
    text = (
        f"p99 by load, in multiples of the unloaded median. At most 3 times: {held}. The ideal queues add nothing of "
        "their own: in one, each request takes the same time, in the other, the time that it took here."
    )
    head = ["| load | p99 | ideal queue, same time for each | ideal queue, time as measured | workers busy |"]
    lines = [
        f"| {100 * r['share']:.0f} % | {r['ratio']:.1f} | {r['ideal_ratio']:.1f} | {r['same_work_ratio']:.1f} | "
        f"{100 * r['busy']:.0f} % |"
        for r in rows
    ]
    return ["", text, "", *head, "|---|---|---|---|---|", *lines]


def _poison(found: dict[str, Any]) -> list[str]:
    if "18 poison" not in found:
        return []
    entry = found["18 poison"]
    rows = [f"| {r['hostile']} of {r['batch']} | {r['source']:.1f} | {r['adapted']:.1f} |" for r in entry["rows"]]
    text = f"Accuracy (%) of {entry['images']} clean images whose batches hold hostile images ({entry['attack']}):"
    return ["", text, "", "| hostile images | source model | adapted |", "|---|---|---|", *rows]


def _layouts(found: dict[str, Any]) -> list[str]:
    if "layouts" not in found:
        return []
    entry = found["layouts"]
    rows = [
        f"| {r['workers']} | {r['threads']} | {r['capacity']:.1f} | {1000 * r['unloaded']:.0f} |" for r in entry["rows"]
    ]
    head = ["| workers | threads of each | requests per second | one request alone, ms |", "|---|---|---|---|"]
    return ["", f"Processes or threads ({entry['load']}):", "", *head, *rows]

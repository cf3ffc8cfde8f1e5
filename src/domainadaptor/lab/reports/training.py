"""Training runs as a table and a figure: accuracy at home and on the domain that was left out."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from domainadaptor.lab.reports.cells import spread
from domainadaptor.lab.reports.figures.canvas import COLORS, GREY, legend_right, panels
from domainadaptor.lab.reports.grid import Entry, Grid, Line, number, with_deviation
from domainadaptor.lab.reports.records import read_json
from domainadaptor.lab.reports.writers.markdown import code, escape, table

Record = dict[str, Any]

ABOUT = (
    "Accuracy in percent on validation images of the source domains, and on the domain that was left out and looked at "
    "once, at the end."
)
FIGURE, CAPTION = "training", "Accuracy at home and on the domain that was left out."
MINUTES = "Minutes: all epochs of a run at the pace of its fastest, since a run may have been paused or disturbed."
_NOT_THE_WAY = ("seed", "sources", "data", "weights", "start")


@dataclass(frozen=True)
class Row:
    """One way of training, over all domains and seeds."""

    setting: str  # data set, network and size
    how: str
    seeds: int
    targets: dict[str, list[float]]  # target -> accuracy, one a seed
    validation: list[float]  # the mean over left-out domains, one a seed
    minutes: float  # of one run, on average: all epochs at the pace of the fastest
    commands: tuple[str, ...]
    notes: tuple[str, ...]
    goes_on: bool = False  # from the network of another row
    each_seed: dict[int, dict[str, float]] = field(default_factory=dict)  # seed -> column -> accuracy
    begins: bool = False  # others go on from its networks


@dataclass(frozen=True)
class TrainingTable:
    """All ways of training one network on one data set."""

    setting: str
    grid: Grid
    commands: tuple[str, ...]
    notes: tuple[str, ...]


def read_records(folder: Path, damaged: dict[str, str]) -> list[Record]:
    """The records of training runs at any depth below a folder, in the order of their names.

    Args:
        folder: Where to look; what `run` keeps in its folders records and plans is something else.
        damaged: Gets the files that cannot be read, from the folder on, and what is wrong with them.
    """
    records = []
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder)
        if name.parts[0] in ("records", "plans"):
            continue
        try:
            record = read_json(path)
            if isinstance(record, dict) and "recipe" in record and "target_accuracy" in record:
                _check(record)
                # In the folder of a run the record has a name that all have, and the folder has the run's.
                records.append(record | {"run": path.parent.name if path.stem == "record" else path.stem})
        except ValueError as error:
            damaged[name.as_posix()] = str(error)
    return records


def rows(records: Sequence[Record]) -> list[Row]:
    """One row for each way of training, in the order in which they first come; plain ERM, the measure of all, first."""
    known = {record["run"]: record for record in records if "run" in record}
    grouped: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        start = known.get(record["recipe"].get("weights", ""))
        grouped.setdefault((_setting(record), _how(record, start), _rest(record)), []).append(record)

    def place(entry: tuple[tuple[str, str, str], list[Record]]) -> tuple[bool, bool, int]:
        (_, how, _), (first, *_) = entry
        return how != "ERM", _goes_on(first), -first["recipe"].get("epochs", 0) if how == "ERM" else 0

    grouped = dict(sorted(grouped.items(), key=place))
    begun = {record["recipe"].get("weights") for record in records if _goes_on(record)}
    built = []
    for (setting, how, _), found in grouped.items():
        alike = [others[0] for (s, h, _), others in grouped.items() if (s, h) == (setting, how)]
        row = _row(setting, f"{how}{_difference(found[0], alike)}" if len(alike) > 1 else how, found)
        built.append(replace(row, begins=any(record.get("run") in begun for record in found)))
    return built


def tables(found: Sequence[Row]) -> list[TrainingTable]:
    """A table for each setting, with the commands that remake it."""
    built = []
    for setting in dict.fromkeys(row.setting for row in found):
        own = [row for row in found if row.setting == setting]
        targets = list(dict.fromkeys(target for row in own for target in row.targets))
        lines = []
        for row in own:
            means = [statistics.fmean(values) for values in row.targets.values()]
            whole = number(statistics.fmean(means)) if means and len(means) == len(targets) else ""
            cells = [with_deviation(spread(row.targets.get(target, []))) for target in targets]
            texts = [str(row.seeds), with_deviation(spread(row.validation)), *cells, whole, number(row.minutes)]
            lines.append(Line(row.how, tuple(map(Entry, texts))))
        columns = ("seeds", "source validation", *targets, "mean", "minutes a run")
        built.append(
            TrainingTable(
                setting,
                Grid("trained with", columns, tuple(lines)),
                tuple(dict.fromkeys(command for row in own for command in row.commands)),
                (
                    *_starts(own),
                    *(f"{note[0].upper()}{note[1:]}." for note in dict.fromkeys(n for row in own for n in row.notes)),
                ),
            )
        )
    return built


def _starts(own: Sequence[Row]) -> list[str]:
    """What the networks that others start from reached, seed by seed: gains are to be read against the same seed."""
    if not any(row.goes_on for row in own):
        return []
    said = [
        "Rows of more epochs (6 + 2: two more after six) go on from the network of the same target and seed; their "
        "minutes come on top."
    ]
    for row in own:
        for seed, there in row.each_seed.items() if row.begins and row.seeds > 1 else ():
            each = ", ".join(f"{name} {number(value)}" for name, value in there.items())
            said.append(f"{row.how}, seed {seed}: {each}.")
    return said


def markdown(found: Sequence[Row], drawn: bool = False) -> str:
    """All tables, each with its commands and notes, and the figure where it was drawn."""
    parts = [f"# Trained networks\n\n{ABOUT}"]
    parts += [f"![{CAPTION}](figures/{FIGURE}.png)"] if drawn else []
    for part in tables(found):
        lines = [f"### {escape(part.setting)}", table(part.grid), code(part.commands), *map(escape, part.notes)]
        parts.append("\n\n".join(lines))
    return "\n\n".join([*parts, MINUTES]) + "\n"


def draw(found: Sequence[Row]) -> Any:
    """A figure: one panel a setting, one group of bars a domain, one bar a way of training."""
    settings = list(dict.fromkeys(row.setting for row in found))
    figure, shown = panels(len(settings), 1, 10, 3.8)
    for panel, setting in zip(shown, settings, strict=True):
        _bars(panel, setting, [row for row in found if row.setting == setting])
    return figure


def _bars(panel: Any, setting: str, own: Sequence[Row]) -> None:
    targets = list(dict.fromkeys(target for row in own for target in row.targets))
    width = 0.8 / len(own)
    for at, row in enumerate(own):
        places = [group + (at - (len(own) - 1) / 2) * width for group in range(len(targets) + 1)]
        groups = [spread(values) for values in (row.validation, *(row.targets.get(target, []) for target in targets))]
        means = [found.mean if found else 0.0 for found in groups]
        spreads = [found.deviation or 0.0 if found else 0.0 for found in groups]
        hatch = "" if at < len(COLORS) else "//"
        bars = panel.bar(places, means, width * 0.92, yerr=spreads if any(spreads) else None, label=row.how,
                         color=COLORS[at % len(COLORS)], hatch=hatch, ecolor="#444444", capsize=2)  # fmt: skip
        if len(own) <= 3:
            panel.bar_label(bars, [f"{mean:.0f}" if mean else "" for mean in means], fontsize=10, padding=2)
    panel.axvline(0.5, color=GREY, linewidth=1, linestyle=":")
    panel.set_xticks(range(len(targets) + 1), ["source\nvalidation", *(f"{t}\n(never seen)" for t in targets)])
    panel.set_ylim(0, 108)
    panel.set_yticks([0, 25, 50, 75, 100])
    panel.set_ylabel("accuracy, %")
    panel.set_title(setting, loc="left")
    panel.grid(axis="x", visible=False)
    if len(own) > 1:
        legend_right(panel, len(own))


def _setting(record: Record) -> str:
    recipe = record["recipe"]
    return f"{recipe['dataset']}, {recipe['network'].rpartition(':')[2]} at {recipe['size']}x{recipe['size']}"


def _how(record: Record, start: Record | None = None) -> str:
    """What is said of a way of training, with the epochs that its start had, where that is known."""
    recipe = record["recipe"]
    name = {"erm": "ERM"}.get(recipe["algorithm"], recipe["algorithm"].upper())
    tasks = "".join(f" + {task}" for task in recipe["options"].get("tasks", ()))
    chosen = f", {recipe['select'].upper()}" if recipe["select"] == "swad" else ""
    norm = ", IABN" if recipe["norm"] == "iabn" else ""
    alone = f", {' + '.join(recipe['sources'])} alone" if _alone(record) else ""
    before = start["recipe"].get("epochs") if start else None
    epochs = f"{before} + {recipe['epochs']} epochs" if before else f"{recipe.get('epochs', '')} more epochs"
    more = f", {epochs}" if _goes_on(record) else ""
    return f"{name}{tasks}{chosen}{norm}{alone}{more}"


def _goes_on(record: Record) -> bool:
    """Whether it starts from another run, of which every name begins with the data set's and the network's."""
    recipe = record["recipe"]
    return str(recipe.get("weights", "")).startswith(f"{recipe['dataset']}-{recipe['network'].rpartition(':')[2]}-")


def _rest(record: Record) -> str:
    """All of a recipe that tells ways of training apart: not the seed, the domains and what they start from."""
    recipe = {k: v for k, v in record["recipe"].items() if k not in _NOT_THE_WAY}
    return json.dumps([recipe, _alone(record)], sort_keys=True)


def _difference(record: Record, others: Sequence[Record]) -> str:
    """In which settings a way of training differs from others of the same name; the epochs, where they are enough."""
    recipe = record["recipe"]
    epochs = [other["recipe"].get("epochs") for other in others]
    if None not in epochs and len(set(epochs)) == len(epochs):
        return f", {recipe['epochs']} epochs"
    names = [k for k in recipe if k not in _NOT_THE_WAY and any(o["recipe"].get(k) != recipe[k] for o in others)]
    words = []
    for name in names:
        value = recipe[name]
        words += [f"{k} {v}" for k, v in value.items()] if isinstance(value, dict) else [f"{name} {value}"]
    return f" ({', '.join(words) or 'other options'})"


def _check(record: Record) -> None:
    try:
        _setting(record), _how(record), _row("", "", [record])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"it is no whole record of a training run ({type(error).__name__}: {error})") from error


def _alone(record: Record) -> bool:
    """Whether it was trained on less than all domains but one."""
    return len(record["recipe"]["sources"]) < len(record["images"]) - 1


def _row(setting: str, how: str, records: Sequence[Record]) -> Row:
    targets: dict[str, list[float]] = {}
    by_seed: dict[int, list[float]] = {}
    for record in records:
        by_seed.setdefault(record["recipe"]["seed"], []).append(record["source_validation"]["accuracy"])
        for target, accuracy in record["target_accuracy"].items():
            targets.setdefault(target, []).append(accuracy)
    return Row(
        setting,
        how,
        len(by_seed),
        dict(sorted(targets.items())),
        [statistics.mean(values) for values in by_seed.values()],
        statistics.mean(_undisturbed(record) for record in records) / 60,
        tuple(dict.fromkeys(record["command"] for record in records)),
        tuple(dict.fromkeys(record["note"] for record in records if record["note"])),
        _goes_on(records[0]),
        {seed: _columns([r for r in records if r["recipe"]["seed"] == seed]) for seed in sorted(by_seed)},
    )


def _columns(records: Sequence[Record]) -> dict[str, float]:
    """Of one seed."""
    home = statistics.mean(record["source_validation"]["accuracy"] for record in records)
    found = {target: value for record in records for target, value in record["target_accuracy"].items()}
    mean = {"mean": statistics.fmean(found.values())} if found else {}  # a network of all domains has no target
    return {"source validation": home, **dict(sorted(found.items())), **mean}


def _undisturbed(record: Record) -> float:
    epochs = record["epochs"]
    return len(epochs) * min(float(epoch["seconds"]) for epoch in epochs)

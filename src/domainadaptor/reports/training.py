"""Training runs as a table and a figure: accuracy at home and on the domain that was left out."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainadaptor.errors import BadFile

Record = dict[str, Any]

_NOT_THE_WAY = ("seed", "sources", "data", "weights", "start")


@dataclass(frozen=True)
class Row:
    """One way of training, over all domains and seeds."""

    setting: str  # data set, network and size
    how: str
    seeds: int
    targets: dict[str, list[float]]  # target -> accuracy, one a seed
    validation: list[float]  # the mean over left-out domains, one a seed
    minutes: float  # of one run, on average
    commands: tuple[str, ...]
    notes: tuple[str, ...]


def read_records(folder: Path) -> list[Record]:
    """The records of training runs at any depth below a folder, in the order of their names.

    Raises:
        BadFile: There is none, or one cannot be read.
    """
    records = []
    for path in sorted(folder.rglob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadFile(f"cannot read the record {str(path)!r}: {error}") from error
        if isinstance(record, dict) and "recipe" in record and "target_accuracy" in record:
            _check(record, path)
            records.append(record)
    if not records:
        raise BadFile(f"no records of training runs below {str(folder)!r}: expected record.json files of `train`")
    return records


def rows(records: Sequence[Record]) -> list[Row]:
    """One row for each way of training, in the order in which they first come."""
    grouped: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        grouped.setdefault((_setting(record), _how(record), _rest(record)), []).append(record)
    names = [(setting, how) for setting, how, _ in grouped]
    built = []
    for (setting, how, _), found in grouped.items():
        alike = [others for (s, h, _), others in grouped.items() if (s, h) == (setting, how)]
        apart = _difference(found[0], [others[0] for others in alike]) if names.count((setting, how)) > 1 else ""
        built.append(_row(setting, f"{how} ({apart})" if apart else how, found))
    return built


def markdown(found: Sequence[Row]) -> str:
    """A table for each setting, with the commands that remake it."""
    parts = []
    for setting in dict.fromkeys(row.setting for row in found):
        own = [row for row in found if row.setting == setting]
        targets = list(dict.fromkeys(target for row in own for target in row.targets))
        head = ["trained with", "seeds", "source validation", *targets, "mean", "minutes a run"]
        lines = [f"### {setting}", "", _line(head), _line(["---"] * len(head))]
        for row in own:
            means = [statistics.mean(values) for values in row.targets.values()]
            whole = f"{statistics.mean(means):.1f}" if means and len(means) == len(targets) else ""
            cells = [_spread(row.targets[target]) if target in row.targets else "" for target in targets]
            lines.append(_line([row.how, str(row.seeds), _spread(row.validation), *cells, whole, f"{row.minutes:.1f}"]))
        commands = list(dict.fromkeys(command for row in own for command in row.commands))
        lines += ["", "```", *commands, "```"]
        lines += [f"\n{note[0].upper()}{note[1:]}." for note in dict.fromkeys(n for row in own for n in row.notes)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def draw(found: Sequence[Row], path: Path) -> None:
    """Writes a figure: one panel a setting, one group of bars a domain, one bar a way of training.

    Raises:
        BadFile: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadFile("figures are drawn with matplotlib: pip install 'domainadaptor[report]'") from error
    settings = list(dict.fromkeys(row.setting for row in found))
    figure = Figure(figsize=(10, 3.4 * len(settings) + 0.3), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(settings), 1, squeeze=False)[:, 0]
    for panel, setting in zip(panels, settings, strict=True):
        _bars(panel, setting, [row for row in found if row.setting == setting])
    figure.savefig(path, dpi=110)


def _bars(panel: Any, setting: str, own: Sequence[Row]) -> None:
    targets = list(dict.fromkeys(target for row in own for target in row.targets))
    width = 0.8 / len(own)
    for number, row in enumerate(own):
        places = [at + (number - (len(own) - 1) / 2) * width for at in range(len(targets) + 1)]
        groups = [row.validation, *(row.targets.get(target, []) for target in targets)]
        means = [statistics.mean(values) if values else 0.0 for values in groups]
        bars = panel.bar(places, means, width * 0.92, label=row.how)
        if len(own) <= 3:
            panel.bar_label(bars, [f"{mean:.0f}" if mean else "" for mean in means], fontsize=8, padding=2)
    panel.axvline(0.5, color="#999999", linewidth=1, linestyle=":")
    panel.set_xticks(
        range(len(targets) + 1), ["source\nvalidation", *(f"{t}\n(never seen)" for t in targets)], fontsize=9
    )
    panel.set_ylim(0, 112)
    panel.set_yticks([0, 25, 50, 75, 100])
    panel.set_ylabel("accuracy, %", fontsize=9)
    panel.set_title(setting, loc="left", fontsize=11)
    panel.spines[["top", "right"]].set_visible(False)
    if len(own) > 1:
        panel.legend(fontsize=8, ncols=min(len(own), 8), loc="upper center", frameon=False)


def _setting(record: Record) -> str:
    recipe = record["recipe"]
    return f"{recipe['dataset']}, {recipe['network'].rpartition(':')[2]} at {recipe['size']}x{recipe['size']}"


def _how(record: Record) -> str:
    recipe = record["recipe"]
    name = {"erm": "ERM"}.get(recipe["algorithm"], recipe["algorithm"].upper())
    tasks = "".join(f" + {task}" for task in recipe["options"].get("tasks", ()))
    chosen = f", {recipe['select'].upper()}" if recipe["select"] == "swad" else ""
    norm = ", IABN" if recipe["norm"] == "iabn" else ""
    alone = f", {' + '.join(recipe['sources'])} alone" if _alone(record) else ""
    return f"{name}{tasks}{chosen}{norm}{alone}"


def _rest(record: Record) -> str:
    """All of a recipe that tells ways of training apart: not the seed, the domains and what they start from."""
    recipe = {k: v for k, v in record["recipe"].items() if k not in _NOT_THE_WAY}
    return json.dumps([recipe, _alone(record)], sort_keys=True)


def _difference(record: Record, others: Sequence[Record]) -> str:
    """In which settings a way of training differs from others of the same name."""
    recipe = record["recipe"]
    names = [k for k in recipe if k not in _NOT_THE_WAY and any(o["recipe"].get(k) != recipe[k] for o in others)]
    words = []
    for name in names:
        value = recipe[name]
        words += [f"{k} {v}" for k, v in value.items()] if isinstance(value, dict) else [f"{name} {value}"]
    return ", ".join(words) or "other options"


def _check(record: Record, path: Path) -> None:
    try:
        _setting(record), _how(record), _row("", "", [record])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadFile(
            f"{str(path)!r} is no whole record of a training run ({type(error).__name__}: {error}); move it away"
        ) from error


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
        statistics.mean(record["seconds"] for record in records) / 60,
        tuple(dict.fromkeys(record["command"] for record in records)),
        tuple(dict.fromkeys(record["note"] for record in records if record["note"])),
    )


def _spread(values: Sequence[float]) -> str:
    """The mean, and the deviation where there is more than one."""
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {statistics.pstdev(values):.1f}" if len(values) > 1 else mean


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

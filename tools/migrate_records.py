"""Make docs/results/records.jsonl.gz from the JSON files of commit e09c18b, and compare both record by record.

    git archive e09c18b docs/results | tar x -C /tmp/old
    python tools/migrate_records.py /tmp/old/docs/results docs/results            # writes records.jsonl.gz
    python tools/migrate_records.py /tmp/old/docs/results docs/results --compare  # compares, writes nothing

What changed: a record has no `id` and `checksum` (the id is the hash of its settings, in which 1 and 1.0 are the same;
the store has the checksum), the settings that its network was trained with are a field, and the oldest records have
their seconds in the layout of the others. Plans list runs with id, command and reason together; their words (title,
about, remarks, sample, label, missing) are not compared, since experiments/*.toml and the program were reworded.
"""

import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from domainadaptor.lab.experiments.networks import Networks, read_networks
from domainadaptor.lab.experiments.spec import NETWORKS, _toml
from domainadaptor.lab.records.store import EXPORT, AnyEntry, Store, parse
from domainadaptor.lab.records.training import TrainingRequest

WORDS = ("title", "about", "remarks", "sample", "label", "missing")
EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def flags(command: str) -> dict[str, list[str]]:
    """Return the options of a training command."""
    found: dict[str, list[str]] = {"dataset": [shlex.split(command)[2]]}
    words = shlex.split(command)[3:]
    for flag, value in zip(words[::2], words[1::2], strict=True):
        found.setdefault(flag[2:].replace("-", "_"), []).append(value)
    return found


def request(checkpoint: dict[str, Any], networks: Networks, trained: dict[str, dict[str, Any]]) -> TrainingRequest:
    """Return the typed settings of a training command, which must be those of networks.toml."""
    given = flags(checkpoint["command"])
    target = given.pop("target", [None])[0]
    found = networks.request(checkpoint["name"], target, int(given.pop("seed")[0]))
    assert found is not None
    settings = found.settings.model_dump()
    assert tuple(given.pop("source", ())) == settings["sources"]
    assert given.pop("network")[0] == settings["network"].partition(":")[2]
    if found.start is not None:
        started = trained[given.pop("weights")[0]]
        own = found.start.settings.model_dump(exclude={"sources", "data", "start", "options", "select_options"})
        assert all(started[name] == value for name, value in own.items()), started
    settings["options"] |= {"task": settings["options"].pop("tasks", [])}
    for name, values in given.items():
        said = values if name == "task" else values[0]
        for pair in values if name == "option" else ():
            key, _, said = pair.partition("=")
            name, settings[key] = key, settings["options"][key]
        known = settings["options"]["task"] if name == "task" else settings[name]
        assert type(known)(said) == known, (name, said, known)
    return found


def migrated(old: Path) -> tuple[list[AnyEntry], dict[str, str], dict[str, Any]]:
    """Return all entries, old id -> new id, and the contents of the old files by kind and new id."""
    problems: list[str] = []
    networks = Networks(read_networks(_toml(EXPERIMENTS / NETWORKS), problems), Path("runs"))
    assert not problems, problems
    contents: dict[str, Any] = {}
    entries: list[AnyEntry] = []
    trained: dict[str, dict[str, Any]] = {}
    for path in sorted((old / "training").glob("*.json")):
        content = json.loads(path.read_text())
        trained[path.stem] = content["recipe"]
        entries.append(parse(json.dumps(content | {"kind": "training", "name": path.stem})))
        contents[f"training {path.stem}"] = content
    for path in sorted((old / "data").glob("*.json")):
        content = json.loads(path.read_text())
        entries.append(parse(json.dumps(content | {"kind": "manifest"})))
        contents[f"manifest {path.stem}"] = content
    ids: dict[str, str] = {}
    for path in sorted((old / "records").glob("*.json")):
        content = json.loads(path.read_text())
        new = json.loads(path.read_text())
        del new["checksum"], new["id"], new["format"]
        if "plain" in new.get("seconds", {}):
            seconds = new["seconds"]
            seconds["compared"] = {name: seconds[name] for name in ("batches", "adapting", "plain")}
            del seconds["plain"]
        checkpoint = new["run"]["checkpoint"]
        if checkpoint["command"]:
            checkpoint["training"] = request(checkpoint, networks, trained).model_dump(mode="json")
        entry = parse(json.dumps(new))
        entries.append(entry)
        ids[content["id"]] = entry.id
        contents[f"{entry.kind} {entry.id}"] = content
    assert len(set(ids.values())) == len(ids)
    for path in sorted((old / "plans").glob("*.json")):
        content = json.loads(path.read_text())
        entries.append(parse(json.dumps(plan(content, ids))))
        contents[f"plan {path.stem}"] = content
    return entries, ids, contents


def plan(content: dict[str, Any], ids: dict[str, str]) -> dict[str, Any]:
    """Return a plan in the new layout."""
    new = json.loads(json.dumps(content))
    del new["format"]
    for table in new["tables"]:
        for row in table["rows"]:
            columns = [row.pop(name) for name in ("cells", "commands", "missing")]
            row["cells"] = {
                column: [runs(*parts, ids) for parts in zip(*(kind[column] for kind in columns), strict=True)]
                for column in columns[0]
            }
    return new


def without_words(content: Any) -> Any:
    """Return a plan without the words that were rewritten."""
    if isinstance(content, dict):
        return {k: without_words(v) for k, v in content.items() if k not in WORDS}
    return [without_words(part) for part in content] if isinstance(content, list) else content


def runs(names: Any, commands: Any, missing: Any, ids: dict[str, str]) -> list[dict[str, str]]:
    """Return the runs of one seed."""
    names, commands, missing = (part if isinstance(part, list) else [part] for part in (names, commands, missing))
    return [
        {"id": ids.get(name, "") if name else "", "command": command, "missing": why}
        for name, command, why in zip(names, commands, missing, strict=True)
    ]


def compared(old: Any, new: Any, where: str = "") -> list[str]:
    """Return where an old content is not in the new one; what is new, and empty, does not count."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = [d for name, value in old.items() for d in compared(value, new.get(name), f"{where}.{name}")]
        return found + [f"{where}.{name} is new: {new[name]!r}" for name in new if name not in old and new[name]]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [d for at, pair in enumerate(zip(old, new, strict=True)) for d in compared(*pair, f"{where}[{at}]")]
    same = old == new and isinstance(old, bool) == isinstance(new, bool)
    return [] if same or (not old and not new and old != 0) else [f"{where}: {old!r} is now {new!r}"]


def differences(store: Store, old: Path) -> tuple[int, list[str]]:
    """Compare all entries of a folder with the old files."""
    _, ids, contents = migrated(old)
    back = {new: name for name, new in ids.items()}
    entries = [*store.runs().values(), *store.plans(), *store.trainings(), *store.manifests()]
    found = [f"{name} is missing" for name in contents.keys() - {f"{e.kind} {e.id}" for e in entries}]
    for entry in entries:
        content, new = contents[f"{entry.kind} {entry.id}"], entry.model_dump(mode="json", by_alias=True)
        new.pop("format")
        if entry.kind in ("evaluation", "measurement"):
            assert content.pop("id") == back[entry.id]
            del content["checksum"], content["format"]
            new["run"]["checkpoint"].pop("training")
            if "plain" in content.get("seconds", {}):
                content["seconds"]["compared"] = {k: content["seconds"][k] for k in ("batches", "adapting", "plain")}
                del content["seconds"]["plain"]
            if entry.kind == "measurement":  # settings of methods are empty
                new["run"] = {k: v for k, v in new["run"].items() if v or k in content["run"]}
        elif entry.kind == "plan":
            content, new = (without_words(part) for part in (plan(content, ids), new))
        else:
            new.pop("kind")
            new["name"] = content.get("name", "")
        found += [f"{entry.kind} {entry.id}{text}" for text in compared(content, new)]
    return len(entries), found


def main(old: Path, results: Path, compare: bool) -> None:
    """Migrate or compare."""
    if compare:
        with Store(results, print, readonly=True) as store:
            count, found = differences(store, old)
        print(*found[:50], f"{count} entries compared, {len(found)} differences", sep="\n")
        raise SystemExit(bool(found))
    entries, ids, _ = migrated(old)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        store.write(*entries)
        (results / EXPORT).write_bytes(store.export().read_bytes())
    changed = sum(name != new for name, new in ids.items())
    print(f"{len(entries)} entries, {changed} of {len(ids)} records have another id")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), "--compare" in sys.argv)

"""Compare the published numbers of two result folders: `python tools/compare_tables.py OLD NEW`.

Every number in a table (Markdown) or data file (CSV) is identified by experiment, table, row and column. Words may
differ as listed in `RENAMED`; a number that is lost, added or changed is printed, and makes the exit status 1.
Both layouts are understood: one CSV per experiment with `details/`, and `results.csv` with `details.csv`.
"""

import csv
import re
import sys
from collections import Counter
from pathlib import Path

# Words of older tables -> today's words; applied to headings, row labels and column names.
RENAMED = {
    "untouched network": "source model",
    "untouched": "source model",
    "ms a batch": "ms per batch",
    "plain, ms": "source model, ms",
    "times plain": "relative time",
    "memory, MB": "peak memory, MB",
    "minutes a run": "minutes per run",
    "correlation with depth": "depth correlation",
    "slope over the depth": "slope over depth",
    "fell back": "fallback batches",
    "images a domain": "images per domain",
    "images in a subset": "images per subset",
}
TOLERANCE = 1e-9  # relative, for numbers that are stored unrounded
_NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_NUMERIC = ("value", "deviation", "seeds", "paper", "paper_deviation", "difference")

Key = tuple[str, ...]


def renamed(text: str) -> str:
    """Return the text with old words replaced and Markdown marks removed."""
    text = re.sub(r"\\(.)", r"\1", text).replace("**", "").strip(" *↳")
    for old, new in RENAMED.items():
        if new not in text:
            text = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, text)
    return text


def markdown_numbers(path: Path) -> dict[Key, str]:
    """Return the text of every table cell that holds numbers, by heading, group, row and column."""
    found: dict[Key, str] = {}
    seen: Counter[Key] = Counter()
    heading, group, above, columns = "", "", "", []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading, group = renamed(line.lstrip("# ")), ""
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not columns:
            columns = [renamed(cell) for cell in cells[1:]]
            group = ""
        elif not set(cells[0]) <= set("-: "):
            if cells[0].startswith("*") and not any(cells[1:]):
                group = renamed(cells[0])
                continue
            label = renamed(cells[0])
            row = f"{above}, {label}" if cells[0].startswith("↳") else label
            above = above if cells[0].startswith("↳") else label
            seen[(heading, group, row)] += 1
            for at, (column, cell) in enumerate(zip(columns, cells[1:], strict=True)):
                if numbers := _NUMBER.findall(cell):
                    place = (path.stem, heading, group, row, str(seen[(heading, group, row)]), f"{at} {column}")
                    found[place] = ("bold " if "**" in cell else "") + " ".join(numbers)
    return found


def csv_numbers(folder: Path) -> dict[Key, str]:
    """Return every number of the data files, by experiment, table, group, row, column and measure."""
    found: dict[Key, str] = {}
    seen: Counter[Key] = Counter()
    single = folder / "results.csv"
    for path in [single] if single.exists() else sorted(folder.glob("*.csv")):
        for line in _lines(path):
            words = [line.get("experiment", path.stem), line["table"], line["group"], line["row"], line["column"]]
            measure = line.get("measure", line.get("what", ""))
            key = tuple(map(renamed, [*words, measure]))
            seen[key] += 1
            found |= {(*key, str(seen[key]), name): line[name] for name in _NUMERIC if line[name]}
    return found


def details(folder: Path) -> dict[Key, str]:
    """Return the numbers by domain and class."""
    found: dict[Key, str] = {}
    single = folder / "details.csv"
    if single.exists():
        for line in _lines(single):
            measure = f"{line['class']} {line['measure']}".strip()
            words = [line[name] for name in ("experiment", "table", "group", "row", "column", "domain")]
            found[tuple(map(renamed, [*words, measure]))] = line["value"]
        return found
    for path in sorted((folder / "details").glob("*.csv")):
        for line in _lines(path):
            words = [path.stem, *(line.pop(name) for name in ("table", "group", "row", "column", "domain"))]
            found |= {tuple(map(renamed, [*words, name])): value for name, value in line.items() if value}
    return found


def same(old: str, new: str) -> bool:
    """Return whether two cells hold the same numbers."""
    if old == new:
        return True
    try:
        return abs(float(old) - float(new)) <= TOLERANCE * max(1.0, abs(float(old)))
    except ValueError:
        return False


def compare(what: str, old: dict[Key, str], new: dict[Key, str]) -> int:
    """Print every difference and return their number."""
    lost, added = old.keys() - new.keys(), new.keys() - old.keys()
    changed = {key for key in old.keys() & new.keys() if not same(old[key], new[key])}
    exact = sum(old[key] == new[key] for key in old.keys() & new.keys())
    for word, keys in (("lost", lost), ("added", added), ("changed", changed)):
        for key in sorted(keys):
            print(f"{what} {word}: {' | '.join(key)}: {old.get(key, '')} -> {new.get(key, '')}")
    print(f"{what}: {len(old)} before, {len(new)} now, {exact} identical as text, {len(changed)} changed")
    return len(lost) + len(added) + len(changed)


def main() -> int:
    """Compare two folders given on the command line."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    old, new = (Path(name) for name in sys.argv[1:])
    tables = [{k: v for path in sorted(f.glob("*.md")) for k, v in markdown_numbers(path).items()} for f in (old, new)]
    differences = compare("Markdown", *tables)
    differences += compare("CSV", csv_numbers(old), csv_numbers(new))
    if (new / "details.csv").exists() or (new / "details").exists():
        differences += compare("details", details(old), details(new))
    return int(differences > 0)


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    sys.exit(main())

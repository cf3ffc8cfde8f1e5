"""Copy titles, introductions and remarks of experiments/*.toml into a results folder's records.jsonl.gz.

    python tools/update_plans.py docs/results

`domainadaptor run` writes them with the plan of an experiment; this is for changes of words alone.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from domainadaptor.lab.records.store import EXPORT, Store

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def main(folder: Path) -> None:
    """Rewrite the exported records if a word changed."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copy(folder / EXPORT, copy)
        with Store(Path(copy)) as store:
            for plan in store.plans():
                words = tomllib.loads((EXPERIMENTS / f"{plan.name}.toml").read_text(encoding="utf-8"))
                remarks = tuple(words.get("remarks", ()))
                store.write(
                    plan.model_copy(update={"title": words["title"], "about": words["about"], "remarks": remarks})
                )
            shutil.copy(store.export(), folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

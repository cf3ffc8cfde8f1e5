"""Copy titles, introductions and remarks of the experiments into a results folder's records.jsonl.gz.

    python tools/update_plans.py docs/results

`domainadaptor run` writes them with the plan of an experiment; this is for changes of words alone.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from domainadaptor.lab.experiments.spec import FILES
from domainadaptor.lab.records.store import EXPORT, Store

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def main(folder: Path) -> None:
    """Rewrite the exported records if a word changed."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copy(folder / EXPORT, copy)
        with Store(Path(copy)) as store:
            for plan in store.plans():
                words = tomllib.loads((FILES / f"{plan.name}.toml").read_text(encoding="utf-8"))
                remarks = tuple(words.get("remarks", ()))
                command = plan.command.replace(f"experiments/{plan.name}.toml", plan.name)
                new = {"title": words["title"], "about": words["about"], "remarks": remarks, "command": command}
                store.write(plan.model_copy(update=new))
            shutil.copy(store.export(), folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The programs in examples/ are short, are listed in the documents, and run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[1]
EXAMPLES = sorted((CLONE / "examples").glob("*.py"))
NEEDS = {  # a module that an example imports and the core does not
    "fastapi_app": "fastapi",
    "hugging_face_pipeline": "transformers",
    "lightning_predict": "lightning",
    "onnxruntime_plain": "onnxruntime",
    "timm_network": "timm",
    "torchvision_resnet": "torchvision",
    "video_stream": "torchvision",
}
ASKS_A_SERVICE = {"client"}  # tests/serve runs it


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_short_and_listed(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
    page = (CLONE / "docs" / "examples.md").read_text(encoding="utf-8")
    assert f"../examples/{path.name}\n" in page


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.stem not in ASKS_A_SERVICE], ids=lambda path: path.stem
)
def test_it_runs(path, tmp_path):
    pytest.importorskip(NEEDS.get(path.stem, "torch"))
    text = path.read_text(encoding="utf-8")
    command = f"python examples/{path.name}"
    assert re.search(rf"^ *{re.escape(command)}\b", text, re.M), "the docstring says how to run it"
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout

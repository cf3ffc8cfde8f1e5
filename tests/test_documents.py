"""Every Python and console block of README, CONTRIBUTING and the site runs.

A comment on the line above a block changes that, and a reader of the Markdown sees why:

    <!-- not run: it needs a GPU -->        the block is skipped, with that reason
    <!-- parsed: training takes hours -->   its commands are checked against the program's options, not run
    <!-- continues -->                      the block goes on where the Python block above it ended

Blocks run in a folder with images/, training-images/, my-images/<domain>/<class>/, classes.txt, weights.safetensors (a
resnet18 of two classes) and checkpoint.safetensors. Commands are `domainadaptor …`, `make …` (the target must exist),
`pip install …` (the extra must exist) and `git clone …`.
"""

import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("typer", reason="the commands of the documents need the extra cli")
import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision.models import resnet18

from domainadaptor.cli import main
from domainadaptor.cli.app import app
from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.networks.checkpoint import Checkpoint, CheckpointCard, make_network, save_checkpoint
from tests.conftest import stir

CLONE = Path(__file__).parents[1]
PAGES = [path for path in sorted((CLONE / "docs").rglob("*.md")) if path.parent.name not in ("adr", "results")]
DOCUMENTS = [CLONE / "README.md", CLONE / "CONTRIBUTING.md", *PAGES]
DOCUMENTS.remove(CLONE / "docs" / "service.md")  # tests/serve runs its examples against a service
TEXT = ("text", "toml", "bibtex", "json", "latex", "makefile")
FENCE = re.compile(r"^(?P<mark><!-- [^\n]* -->\n)?```(?P<language>[^\n]*)\n(?P<body>.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    document: str
    line: int
    language: str
    body: str
    mark: str


def blocks() -> list[Block]:
    found: list[Block] = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        before = ""
        for match in FENCE.finditer(text):
            mark = (match["mark"] or "").strip().removeprefix("<!--").removesuffix("-->").strip()
            body = before + match["body"] if mark == "continues" else match["body"]
            before = body if match["language"] == "python" else before
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(str(path.relative_to(CLONE)), line, match["language"], body, mark))
    return found


BLOCKS = blocks()


def named(block: Block) -> str:
    return f"{block.document}:{block.line}"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Build what the documents speak of, once."""
    folder = tmp_path_factory.mktemp("documents")
    rng = np.random.default_rng(0)
    places = ["images", "training-images"]
    places += [f"my-images/{domain}/{name}" for domain in ("day", "night") for name in ("cat", "dog")]
    for place in places:
        (folder / place).mkdir(parents=True)
        for at in range(8):
            pixels = rng.integers(0, 255, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / place / f"{at}.jpg")
    (folder / "classes.txt").write_text("cat\ndog\n")
    torch.manual_seed(0)
    save_file(stir(resnet18(num_classes=2)).state_dict(), folder / "weights.safetensors")
    network = stir(make_network("resnet20", 2, head_bias=True, norm="batch"))
    card = CheckpointCard("cifar:resnet20", ("cat", "dog"), squashed(24), head_bias=True, norm="batch")
    save_checkpoint(folder / "checkpoint.safetensors", Checkpoint(card, network.state_dict()))
    return folder


@pytest.fixture
def workspace(prepared, tmp_path, monkeypatch):
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOMAINADAPTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DOMAINADAPTOR_DATA", raising=False)
    return tmp_path


def commands(body: str) -> list[list[str]]:
    """Return the commands of a console block as words; where lines start with "$ ", the others are output."""
    lines = body.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def call(words: list[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code, shlex.join(words)


def parse(words: list[str]) -> None:
    """Check subcommand, options and arguments as the program would, without running it."""
    from typer.main import get_command

    command = get_command(app)
    while hasattr(command, "commands") and not words[0].startswith("-"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context("domainadaptor", list(words))


def follow(words: list[str], only_parse: bool, monkeypatch) -> None:
    program = words[0].removeprefix(".venv/bin/")
    if program == "domainadaptor":
        parse(words[1:])
        if not only_parse:
            call(["domainadaptor", *words[1:]], monkeypatch)
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (CLONE / "Makefile").read_text(), re.M)
        assert words[1] in targets, words
    elif words[:2] in (["pip", "install"], ["uv", "add"]):
        named = re.findall(r"domainadaptor\[([\w,]+)\]", " ".join(words))
        extras = re.findall(r"^(\w+) = \[", (CLONE / "pyproject.toml").read_text(), re.M)
        assert all(extra in extras for names in named for extra in names.split(","))
    else:
        assert program in ("git", "cd", "torchrun", "curl"), words


@pytest.mark.parametrize("block", BLOCKS, ids=named)
def test_the_block_runs(block, workspace, monkeypatch):
    if block.mark.startswith("not run"):
        pytest.skip(block.mark)
    if block.language == "python":
        exec(compile(block.body, named(block), "exec"), {"__name__": "__main__"})
    elif block.language == "console":
        for words in commands(block.body):
            follow(words, block.mark.startswith("parsed"), monkeypatch)
    elif not block.language.startswith("{"):  # a directive of the site
        assert block.language in TEXT, "name the block's language: python and console blocks run, text ones do not"


def test_marks_have_a_reason():
    for block in BLOCKS:
        if block.mark and block.mark != "continues":
            kind, _, reason = block.mark.partition(": ")
            assert kind in ("not run", "parsed"), named(block)
            assert reason, named(block)

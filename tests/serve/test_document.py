"""docs/service.md: its examples run against a service, and its tables are those of the code."""

import json
import os
import re
import subprocess
import sys

import pytest

from domainadaptor.serve.settings import ServeSettings
from tests.serve import report
from tests.serve.load import ideal_queue
from tests.serve.service import picture
from tests.test_documents import CLONE, FENCE, commands, follow, parse

TEXT = (CLONE / "docs" / "service.md").read_text(encoding="utf-8")
BLOCKS = [match for match in FENCE.finditer(TEXT) if match["language"] in ("python", "console")]


@pytest.fixture
def images(tmp_path, monkeypatch):
    for at, name in enumerate(("cat.png", "dog.png")):
        (tmp_path / name).write_bytes(picture(at))
    monkeypatch.chdir(tmp_path)


def line(match: re.Match) -> str:
    return f"line {TEXT.count(chr(10), 0, match.start()) + 1}"


@pytest.mark.parametrize("block", BLOCKS, ids=line)
def test_the_example_runs(block, service, images, monkeypatch):
    body = block["body"].replace("127.0.0.1:8000", f"127.0.0.1:{service.port}")
    if block["language"] == "python":
        exec(compile(body, line(block), "exec"), {"__name__": "__main__"})
        return
    for words in commands(body):
        if words[0] == "curl":
            done = subprocess.run(["curl", "-sS", "--fail", *words[1:]], capture_output=True, check=True)
            assert json.loads(done.stdout)
        elif words[:2] == ["domainadaptor", "serve"]:
            parse(words[1:])
        elif words[0] != "docker":
            follow(words, True, monkeypatch)


def rows(heading: str) -> list[list[str]]:
    part = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\| `.*$", part, re.M)]


def test_the_limits_are_those_of_the_settings():
    fields = ServeSettings.model_fields
    names = [name for name in fields if name.startswith("max_") or name.endswith(("_timeout", "_limit", "queue"))]
    documented = {row[0].strip("`"): row[1] for row in rows("Limits")}
    assert documented == {name: str(ServeSettings(network="x").__getattribute__(name)) for name in names}


def test_the_metrics_are_those_of_the_service(service):
    documented = {name.strip("`") for row in rows("Metrics") for name in row[0].split(", ")}
    page = service.ask("GET", "/metrics").body.decode()
    shown = re.findall(r"^# TYPE (\S+) (counter|gauge|histogram)$", page, re.M)
    assert documented == {name for name, kind in shown if not name.endswith("_created")}


def test_the_routes_are_those_of_the_service(service):
    documented = {tuple(found) for row in rows("Routes") for found in re.findall(r"`(\w+) (/\S*)`", row[0])}
    paths = json.loads(service.ask("GET", "/openapi.json").body)["paths"]
    shown = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert documented == shown | {("GET", "/openapi.json")}


def test_the_multiples_are_those_of_ideal_queues():
    text = TEXT.partition("| workers | at 40 % of capacity | at 60 % | at 80 % |\n")[2].partition("\n\n")[0]
    lines = [[float(cell) for cell in line.strip("|").split("|")] for line in text.splitlines()[1:]]
    assert [line[0] for line in lines] == [1, 2, 4, 8]
    for workers, *shown in lines:
        found = [ideal_queue(share * workers, [1.0] * 100_000, int(workers)) for share in (0.4, 0.6, 0.8)]
        assert shown == pytest.approx(found, rel=0.04)


def test_the_measured_part_is_that_of_the_numbers():
    found = json.loads(report.NUMBERS.read_text()) if report.NUMBERS.is_file() else {}
    assert TEXT.partition(report.BEGIN)[2].partition(report.END)[0] == report.shown(found)


@pytest.mark.parametrize("flags", [(), ("--stream", "--batch", "3")])
def test_the_example_client_predicts_a_folder(service, tmp_path, flags):
    for at in range(5):
        (tmp_path / f"{at}.png").write_bytes(picture(at))
    client = CLONE / "examples" / "client.py"
    url = f"http://127.0.0.1:{service.port}"
    words = [sys.executable, client, tmp_path, "--url", url, *flags]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "NO_PROXY": "*"})
    files = [row.split("\t")[0] for row in done.stdout.splitlines() if not row.startswith("note: ")]
    assert sorted(files) == [f"{at}.png" for at in range(5)]
    assert len(client.read_text().splitlines()) <= 60
    (tmp_path / "broken.png").write_bytes(b"x")
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert "400: Image" in done.stderr

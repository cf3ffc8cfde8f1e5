"""Ray starts without reports, without look-ups, and on the loopback address alone."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from domainadaptor.errors import BadOption
from domainadaptor.lab.cluster.start import Workers, quiet_environment, ray_session

SESSION = """
from domainadaptor.lab.cluster.start import ray_session
with ray_session(cpus=1):
    import ray
    print(ray.get(ray.remote(lambda: 6 * 7).remote()))
"""
# Python imports this at its start, in every process that inherits the path: look-ups of names are written to a file.
WATCH = """
import os, sys
def watch(event, arguments):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"):
        with open(os.environ["LOOKUPS"], "a") as file:
            file.write(f"{event} {arguments[0]}\\n")
sys.addaudithook(watch)
"""


def test_the_environment_is_set_for_the_start_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("DOMAINADAPTOR_CACHE", str(tmp_path))
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    before = dict(os.environ)
    with quiet_environment():
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        with open(os.path.expanduser("~/ray_bootstrap_config.yaml"), encoding="utf-8") as file:
            assert file.read() == "provider: {type: local}\n"
    assert dict(os.environ) == before


def test_ray_is_started_in_one_place():
    import domainadaptor

    starts = re.compile(r"\bray\.init\(|cluster_utils|\bserve\.start\(|[\"']ray[\"'], [\"']start")
    files = [*Path(domainadaptor.__file__).parent.rglob("*.py"), *Path(__file__).parents[2].rglob("*.py")]
    found = {path.name for path in files if starts.search(path.read_text(encoding="utf-8"))}
    assert found == {"start.py", Path(__file__).name}


@pytest.mark.slow
def test_ray_asks_no_host_outside(tmp_path):
    pytest.importorskip("ray", reason="it needs the extra ray")
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    lookups, calls = tmp_path / "lookups", tmp_path / "calls"
    lookups.touch()
    words = [sys.executable, "-c", SESSION]
    if strace := shutil.which("strace"):  # C++ processes too
        words = [strace, "-f", "-qq", "-e", "trace=connect,sendto", "-o", str(calls), *words]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "LOOKUPS": str(lookups), "DOMAINADAPTOR_CACHE": str(tmp_path)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=500)
    assert done.stdout.split() == ["42"], done.stderr
    asked = {line.split()[1] for line in lookups.read_text().splitlines()}
    assert asked <= {"127.0.0.1", "::1", "localhost", "None", "0.0.0.0"}
    text = calls.read_text() if strace else ""
    addresses = set(re.findall(r'inet_addr\("([^"]+)"\)', text)) | set(re.findall(r'AF_INET6, "([^"]+)"', text))
    assert not strace or addresses
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_explained():
    pytest.importorskip("ray", reason="it needs the extra ray")
    with pytest.raises(BadOption, match="Cannot connect to --address '127.0.0.1:1'"), ray_session("127.0.0.1:1"):
        pass


def test_workers_fit_on_machines():
    assert Workers(threads=2)._room({"CPU": 5.0}) == 2
    assert Workers(threads=4)._room({"CPU": 1.0}) == 1  # it works, more slowly
    assert Workers()._room({}) == 0
    assert Workers(gpus=0.5)._room({"CPU": 8.0, "GPU": 1.0}) == 2
    assert Workers(gpus=0.5)._room({"CPU": 8.0}) == 0

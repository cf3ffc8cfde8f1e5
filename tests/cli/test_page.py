"""`domainadaptor page`: mistakes on the command line, and what is served."""

import socket

import pytest

pytest.importorskip("starlette", reason="the page needs the extra page")

from domainadaptor.page import server
from tests.lab.experiments.pictures import make_checkpoint


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("none.safetensors",), "no checkpoint at"),
        (("vgg11",), "no published weights of"),
        (("--device", "abacus"), "--device 'abacus' is not available"),
    ],
)
def test_mistakes_are_explained_before_anything_is_served(program, monkeypatch, arguments, hint):
    monkeypatch.setattr(server, "run_page", None)
    done = program("page", *arguments)
    assert done.returncode == 1
    assert hint in done.stderr


def test_a_port_in_use_is_explained(program):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = program("page", "--no-browser", "--port", taken.getsockname()[1])
    assert done.returncode == 1
    assert "Leave it out to use a free one" in done.stderr


def test_the_address_is_printed_and_opened_and_this_machine_only(program, monkeypatch, tmp_path):
    opened, served = [], []

    def serve(self, sockets):
        served.extend(listener.getsockname() for listener in sockets)
        for listener in sockets:
            listener.close()

    monkeypatch.setattr(server.uvicorn.Server, "run", serve)
    monkeypatch.setattr(server.webbrowser, "open", opened.append)
    make_checkpoint(tmp_path / "mine.safetensors")
    first, second = (program("page", "mine.safetensors", *more) for more in ((), ("--no-browser",)))
    assert first.returncode == 0, first.stderr
    address = first.stdout.split()[0]
    assert opened == [address]
    assert [host for host, _ in served] == ["127.0.0.1"] * 2
    assert address.startswith(f"http://127.0.0.1:{served[0][1]}/")
    secrets = {done.stdout.split()[0].split("/")[3] for done in (first, second)}
    assert len(secrets) == 2
    assert min(map(len, secrets)) >= 20

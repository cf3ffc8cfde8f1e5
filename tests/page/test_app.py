"""The routes: who may use them, what they accept, and what happens when the browser leaves."""

import json
import socket
import threading
import urllib.error
import urllib.request

import pytest

from domainadaptor.page import app, pictures
from tests.page.pictures import picture


def ask(address, method="GET", data=None, **headers):
    """Return the status, the headers and the body of an answer."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(address, data, names, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def lines(address, path, **order):
    status, _, body = ask(address + path, "POST", json.dumps(order).encode())
    assert status == 200
    return [json.loads(line) for line in body.splitlines()]


@pytest.mark.parametrize("path", ["", "page.css", "page.js"])
def test_files_let_the_browser_ask_only_this_program(address, path):
    status, headers, body = ask(address + path)
    assert status == 200
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "http" not in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert b"http://" not in body
    assert b"https://" not in body


@pytest.mark.parametrize("path", ["", "page.js", "about", "wrong/about", "s3cret/../about", "s3cret/%2e%2e/app.py"])
def test_nothing_is_there_without_the_secret(address, path):
    base = address.removesuffix("s3cret/")
    assert ask(base + path)[0] == 404


def test_a_foreign_name_for_this_machine_is_refused(address):
    assert ask(address + "about", Host="evil.example")[0] == 400
    assert ask(address + "about", Host="evil.example:80")[0] == 400
    assert ask(address + "about", Host="localhost:9999")[0] == 200  # a tunnel


def test_a_run_streams_progress_rows_and_the_verdict(address):
    found = lines(address, "run", style="pen", method="adabn")
    assert {"what": "Reading and adapting", "done": 200, "total": 200} in found
    assert sum(len(line.get("rows", [])) for line in found) == 200
    assert found[-1]["verdict"]["headline"]
    status, headers, body = ask(address + f"checkpoint?run={found[-1]['run']}", "POST", b"")
    assert (status, headers["content-type"]) == (200, "application/octet-stream")
    assert len(body) > 1000
    status, _, body = ask(address + "checkpoint?run=99", "POST", b"")
    assert status == 400
    assert json.loads(body)["error"].startswith("Another run")


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ({"method": "tnt", "style": "pen"}, "Unknown method 'tnt'"),
        ({"method": "adabn"}, "Choose a folder or some images first."),
    ],
)
def test_mistakes_are_the_last_line(address, order, message):
    assert lines(address, "run", **order)[-1]["error"].startswith(message)


@pytest.mark.parametrize(
    "order",
    [
        b"{",
        b"[]",
        b'{"method": "adabn", "severity": 6}',
        b'{"method": "adabn", "batch_size": 0}',
        b'{"method": "adabn", "corruption": "rain"}',
        b'{"method": "adabn", "more": 1}',
        json.dumps({"method": "adabn", "images": {str(at): "b" for at in range(1001)}}).encode(),
        b'{"method": "' + b"a" * 1024**2 + b'"}',
    ],
)
def test_orders_that_the_page_cannot_send_are_refused(address, order):
    status, _, body = ask(address + "run", "POST", order)
    assert status == 400
    assert json.loads(body)["error"].endswith(".")


def test_images_are_kept_once_and_within_limits(address, workshop, monkeypatch):
    first, second = (json.loads(ask(address + "images", "PUT", picture())[2])["id"] for _ in range(2))
    assert first == second
    assert workshop.store.find({"a": first}).files["a"] == picture()
    status, _, body = ask(address + "images", "PUT", b"no image")
    assert status == 400
    assert json.loads(body)["error"].startswith("Not a readable image (unknown format; known are BMP, ")
    monkeypatch.setattr(app, "MAX_BYTES", 1024**2)
    status, _, body = ask(address + "images", "PUT", bytes(2 * 1024**2))
    assert status == 400
    assert json.loads(body)["error"] == "Larger than 1 MB, which is the most that is accepted."


def test_a_bug_is_told_without_its_trace(address, monkeypatch, caplog):
    monkeypatch.setattr(pictures.Pictures, "fitted", None)
    assert "bug in the program" in lines(address, "run", style="pen", method="adabn")[-1]["error"]
    assert "TypeError" in caplog.text


def test_leaving_cancels_the_run_and_the_next_one_works(address, monkeypatch):
    """The reader waits in the tenth image until the browser has left."""
    read, left, proceed = [], threading.Event(), threading.Event()
    fitted = pictures.Pictures.fitted

    def slow(self, *arguments):
        def reader(name):
            read.append(name)
            if len(read) == 10:
                left.set()
                assert proceed.wait(60)
            return inner(name)

        inner = fitted(self, *arguments)
        return reader

    monkeypatch.setattr(pictures.Pictures, "fitted", slow)
    order = json.dumps({"style": "pen", "method": "adabn", "batch_size": 4}).encode()
    host, _, path = address.removeprefix("http://").partition("/")
    with socket.create_connection(host.split(":")) as connection:
        head = f"POST /{path}run HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(order)}\r\n\r\n"
        connection.sendall(head.encode() + order)
        assert left.wait(60)
    about = ask(address + "about")  # by now the server has noticed
    assert about[0] == 200
    proceed.set()
    monkeypatch.setattr(pictures.Pictures, "fitted", fitted)
    assert lines(address, "run", style="pen", method="adabn")[-1]["images"] == 200
    assert len(read) < 20

"""A service in processes of its own, and a client that is cheap enough to measure it: one request, one connection."""

import asyncio
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import torch
from PIL import Image

from domainadaptor.lab.data.preprocessing import squashed
from domainadaptor.lab.networks.checkpoint import Checkpoint, CheckpointCard, make_network, save_checkpoint
from tests.conftest import stir

CLASSES = ("cat", "dog", "bird")


def write_checkpoint(path: Path, size: int = 16):
    """Write a small network that looks trained, and return it with its preprocessing."""
    torch.manual_seed(0)
    network = stir(make_network("resnet20", len(CLASSES), head_bias=True, norm="batch"))
    card = CheckpointCard("cifar:resnet20", CLASSES, squashed(size), head_bias=True, norm="batch")
    save_checkpoint(path, Checkpoint(card, network.state_dict()))
    return network, card.preprocessing


def picture(seed: int, side: int = 20, form: str = "PNG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (side, side + 4, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def png(image: torch.Tensor) -> bytes:
    """Return an image with values from 0 to 1, (3, H, W), as a file."""
    file = io.BytesIO()
    Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy()).save(file, "PNG")
    return file.getvalue()


def form(files: list[bytes], boundary: str = "frontier") -> tuple[bytes, str]:
    """Return a multipart body and its content type."""
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="images"; filename="{at}.png"\r\n\r\n'.encode() + data
        for at, data in enumerate(files)
    ]
    return b"\r\n".join([*parts, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}"


class Answer(NamedTuple):
    status: int  # 0 if the connection ended without an answer
    headers: dict[str, str]
    body: bytes
    seconds: float

    @property
    def error(self) -> str:
        return json.loads(self.body)["error"]


def raw_request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return the bytes of a request; underscores in names of headers stand for hyphens."""
    lines = {"Host": "localhost", "Content-Length": str(len(body)), "Connection": "close"}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value != "")
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


async def exchange(port: int, data: bytes, since: float | None = None) -> Answer:
    """Send bytes on a connection of their own and read what comes back."""
    start = time.perf_counter() if since is None else since
    received = b""
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        received = await reader.read(-1)
    except OSError:
        pass
    finally:
        if writer is not None:
            writer.close()
    return parse_answer(received, time.perf_counter() - start)


def parse_answer(received: bytes, seconds: float = 0.0) -> Answer:
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    if not lines[0].startswith("HTTP/1.1 "):
        return Answer(0, {}, b"", seconds)
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return Answer(int(lines[0].split()[1]), headers, body, seconds)


async def poisson(port: int, requests: list[bytes], rate: float, seed: int = 0) -> list[Answer]:
    """Send each request at its own random time, whether or not earlier ones are answered.

    Seconds count from the time at which a request was due, so that a late start counts as waiting.
    """
    draw = random.Random(seed)
    due, tasks = time.perf_counter(), []
    for data in requests:
        due += draw.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(exchange(port, data, due)))
    return list(await asyncio.gather(*tasks))


async def dripping(port: int, start: bytes, drip: bytes, every: float = 0.1, most: float = 20.0) -> tuple[float, bytes]:
    """Send the start, then drip by drip; return after how long the connection ended, and what was answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.perf_counter()
    answered = asyncio.create_task(reader.read(-1))
    writer.write(start)
    while not answered.done() and time.perf_counter() - began < most:
        writer.write(drip)
        await asyncio.wait({answered}, timeout=every)
    took = time.perf_counter() - began
    writer.close()
    try:
        return took, await asyncio.wait_for(answered, 1)
    except (OSError, asyncio.TimeoutError):
        return took, b""


def wait_for(condition, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.2)


# Python imports it at its start, in the service and in its workers.
AUDIT = """
import os, sys
log = os.open(os.path.join(os.path.dirname(__file__), "events"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def watch(event, args):
    if event in ("open", "socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen"):
        os.write(log, f"{event} {args[1 if event == 'socket.connect' else 0]}\\n".encode())
sys.addaudithook(watch)
"""


class Service:
    """`domainadaptor serve` as a process, with its log and the files and connections that it opens."""

    def __init__(self, folder: Path, *flags: str, **variables: str) -> None:
        self._audit = folder / f"audit-{time.monotonic_ns()}"
        self._audit.mkdir()
        (self._audit / "sitecustomize.py").write_text(AUDIT)
        path = os.pathsep.join(filter(None, [str(self._audit), os.environ.get("PYTHONPATH")]))
        self._log = (folder / f"log-{time.monotonic_ns()}.jsonl").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "domainadaptor", "serve", "network.safetensors", "--port", "0", *flags],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": path, **variables},
        )
        self.port = 0

    def wait(self) -> "Service":
        until = time.monotonic() + 240
        while not (found := [line for line in self.log() if line.get("event") == "serving"]):
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < until, self.text()
            time.sleep(0.1)
        self.port = int(found[0]["url"].rpartition(":")[2])
        while self.ask("GET", "/v2/health/live").status != 200:
            assert time.monotonic() < until, self.text()
        return self

    def text(self) -> str:
        return Path(self._log.name).read_text(encoding="utf-8")

    def log(self) -> list[dict]:
        return [json.loads(line) for line in self.text().splitlines() if line.startswith("{") and line.endswith("}")]

    def events(self) -> list[str]:
        return (self._audit / "events").read_text(encoding="utf-8", errors="replace").splitlines()

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        return self.send(raw_request(method, path, body, **headers))

    def send(self, *data: bytes) -> Answer:
        return asyncio.run(exchange(self.port, b"".join(data)))

    def predict(self, files: list[bytes], query: str = "") -> Answer:
        body, kind = form(files)
        return self.ask("POST", f"/predict{query}", body, Content_Type=kind)

    def metric(self, name: str) -> float:
        lines = self.ask("GET", "/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"domainadaptor_{name}"))

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def wait_for_workers(self, count: int) -> None:
        until = time.monotonic() + 120
        while self.metric("workers ") < count:
            assert time.monotonic() < until, self.text()
            time.sleep(0.2)

    def memory(self) -> int:
        processes = [psutil.Process(self.process.pid), *self.workers()]
        return sum(process.memory_info().rss for process in processes)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            self._log.close()

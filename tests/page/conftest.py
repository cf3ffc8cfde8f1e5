"""A page in a thread of this process, whose demo network has random weights: training takes seconds."""

import threading

import pytest

pytest.importorskip("starlette", reason="the page needs the extra page")

import socket

import torch
import uvicorn

from domainadaptor.lab.networks.checkpoint import Checkpoint, make_network, save_checkpoint
from domainadaptor.page import networks
from domainadaptor.page.app import make_app
from domainadaptor.page.workshop import Workshop
from tests.conftest import stir

SECRET = "s3cret"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, in an empty current folder."""
    monkeypatch.setenv("DOMAINADAPTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


@pytest.fixture
def demo(cache):
    """The demo network, as if it had been trained."""
    network = stir(make_network("cifar:resnet8", 10, head_bias=True, norm="batch"))
    path = networks.demo_path()
    path.parent.mkdir(parents=True)
    save_checkpoint(path, Checkpoint(networks.CARD, network.state_dict()))
    return network


@pytest.fixture
def workshop(demo):
    return Workshop(networks.NetworkFinder(), torch.device("cpu"))


@pytest.fixture
def address(workshop):
    """The address of a running page."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(workshop, SECRET), ws="none", lifespan="off", log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/{SECRET}/"
    server.should_exit = server.force_exit = True
    thread.join(30)
    assert not thread.is_alive()

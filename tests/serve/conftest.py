"""One service for all tests that do not end it: starting one takes seconds of imports."""

import pytest

pytest.importorskip("fastapi", reason="the service needs the extra serve")

from tests.serve.service import Service, write_checkpoint

LIMITS = {
    "client_timeout": 4,
    "max_bytes": 400_000,
    "max_images": 16,
    "max_pixels": 1_000_000,
    "max_models": 3,
    "max_streams": 4,
    "queue": 4,
    "time_limit": 10,
}


def pytest_collection_modifyitems(config, items):
    """Leave out what takes half an hour and a quiet machine, unless it is asked for."""
    if "load" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("load")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="session")
def network(folder):
    """The network that is served, and its preprocessing."""
    return write_checkpoint(folder / "network.safetensors")


@pytest.fixture(scope="session")
def running(network, folder):
    flags = [word for name, value in LIMITS.items() for word in ("--limit", f"{name}={value}")]
    service = Service(folder, "--workers", "2", *flags).wait()
    service.wait_for_workers(2)
    yield service
    assert service.stop() == 0


@pytest.fixture
def service(running):
    """The service; whatever the test before did to it, both workers are ready."""
    running.wait_for_workers(2)
    return running

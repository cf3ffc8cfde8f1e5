"""What the tests of experiments start from."""

import pytest

from domainadaptor.lab.records.store import Store
from tests.lab.experiments.pictures import make_checkpoint, make_pictures


@pytest.fixture
def base(tmp_path):
    make_pictures(tmp_path / "pictures")
    make_checkpoint(tmp_path / "mine.safetensors")
    return tmp_path


@pytest.fixture
def store(base):
    with Store(base / "results", pytest.fail) as opened:
        yield opened

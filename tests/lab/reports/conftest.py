"""What the tests of reports start from."""

import pytest

from tests.lab.reports.folder import Folder


@pytest.fixture
def made(tmp_path):
    return Folder(tmp_path, images=40)

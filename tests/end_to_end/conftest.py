"""The program, run in this process."""

from tests.cli.conftest import program  # noqa: F401  (a fixture)

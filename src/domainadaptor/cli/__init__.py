"""The command line: one file per command."""

from domainadaptor.cli.app import main as main

"""The command line: one file per command; the folder is the registry."""

from domainadaptor.extras import require_extra

__all__ = ["main"]


def main() -> None:
    """Run the program `domainadaptor`."""
    try:
        require_extra("cli", "The command line")
    except ImportError as error:
        raise SystemExit(f"error: {error}") from None
    from domainadaptor.cli.app import main as start

    start()

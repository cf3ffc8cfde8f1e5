"""`python -m domainadaptor`."""

from domainadaptor.cli import main

main()

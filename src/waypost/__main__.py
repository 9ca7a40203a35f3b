"""`python -m waypost` is the command."""

from waypost.cli.main import run

run()

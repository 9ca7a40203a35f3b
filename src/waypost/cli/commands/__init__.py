"""One module for each command; `waypost.cli.main` loads them by name."""

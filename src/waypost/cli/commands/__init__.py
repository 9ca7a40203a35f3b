"""The commands by subject; `waypost.cli.main` loads a module when its command is used."""

"""Sample agents in several dialects, for `waypost demo` and the tutorial.

The documents are package data, one folder for each dialect: `data/<dialect>/<name>.json`, or `.rtfs` for an agent profile.
"""

from __future__ import annotations

from importlib.resources import files

import msgspec


class Sample(msgspec.Struct, frozen=True):
    """One document as its publisher would send it."""

    name: str
    dialect: str
    data: bytes


def load() -> list[Sample]:
    """All samples, ordered by dialect and name."""
    folders = sorted((files(__package__) / "data").iterdir(), key=lambda folder: folder.name)
    return [
        Sample(name=document.name.rpartition(".")[0], dialect=folder.name, data=document.read_bytes())
        for folder in folders
        for document in sorted(folder.iterdir(), key=lambda document: document.name)
    ]

"""Files for their owner alone, written whole or not at all. What stands in them it does not know."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from waypost.errors import ConfigurationError


def write_atomic(path: Path, content: bytes) -> None:
    """The old file or the new one, never half of it."""
    try:
        _write_temporary(path, content).replace(path)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}.", path="data", hint="Name a folder of your own with --data."
        ) from None


def create_atomic(path: Path, content: bytes) -> None:
    """Never over one that is there, also when another process made it meanwhile. Raises OSError."""
    fresh = _write_temporary(path, content)
    try:
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()


def create_private(path: Path, content: bytes) -> None:
    """A file that is not there yet, mode 0600 and on the disk. Raises OSError."""
    _make_folder(path.parent)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _write_temporary(path: Path, content: bytes) -> Path:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    create_private(fresh, content)
    return fresh


def _make_folder(folder: Path) -> None:
    """For its owner alone, and so are the folders above it that are not there yet."""
    for missing in reversed([place for place in (folder, *folder.parents) if not place.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)

"""Private files (mode 0600), written atomically."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from waypost.errors import ConfigurationError


def write_atomic(path: Path, content: bytes) -> None:
    """Replace the file atomically. Raises ConfigurationError."""
    try:
        _write_temporary(path, content).replace(path)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}.", path="data", hint="Choose a writable folder with --data."
        ) from None


def create_atomic(path: Path, content: bytes) -> None:
    """Create the file atomically; an existing one stays, even if another process creates it meanwhile. Raises OSError."""
    fresh = _write_temporary(path, content)
    try:
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()


def create_private(path: Path, content: bytes) -> None:
    """Create a new file with mode 0600 and sync it. Raises OSError, also if it exists."""
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
    """Create the folder and its missing parents with mode 0700."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)

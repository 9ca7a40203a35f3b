"""Private files (mode 0600) that are written atomically, and files that are reloaded when they change on disk."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from waypost import limits
from waypost.errors import ConfigurationError, WaypostError


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


log = logging.getLogger("waypost.server")

T = TypeVar("T")


class WatchedFile(Generic[T]):
    """The first load must succeed. If a later one fails, the last value stays and a warning is logged once."""

    def __init__(self, path: Path, setting: str, parse: Callable[[bytes], T], now: Callable[[], float]) -> None:
        self.path = path
        self._setting = setting
        self._parse = parse
        self._now = now
        self._stamp = file_stamp(path)
        self._value = self._read()
        self._checked_at = now()

    def value(self) -> T:
        now = self._now()
        if abs(now - self._checked_at) >= limits.FILE_CHECK_SECONDS:
            self._checked_at = now
            self.refresh()
        return self._value

    def refresh(self) -> None:
        """Check for a change now."""
        stamp = file_stamp(self.path)
        if stamp == self._stamp or stamp is None:
            return
        self._stamp = stamp
        try:
            self._value = self._read()
        except ConfigurationError as error:
            log.warning("%s is not reloaded: %s", self._setting, error)
            return
        log.info("%s was reloaded", self._setting)

    def _read(self) -> T:
        try:
            return self._parse(self.path.read_bytes())
        except OSError as error:
            raise self._unusable(error.strerror or "it cannot be read") from None
        except WaypostError as error:
            raise self._unusable(error.message) from None
        except ValueError as error:
            raise self._unusable(str(error) or "it cannot be parsed") from None

    def _unusable(self, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"The {self._setting} file cannot be used ({self.path.name}): {reason.rstrip('.')}.",
            path=self._setting,
            hint=f"See docs/reference/settings.md for what {self._setting} is.",
        )


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Differs whenever the file was changed or replaced; None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino

"""A file that somebody may replace while the service runs: what it says now, read again when it changed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from waypost import limits
from waypost.errors import ConfigurationError, WaypostError

log = logging.getLogger("waypost.server")

T = TypeVar("T")


class WatchedFile(Generic[T]):
    """The first reading must succeed. Later, what cannot be read leaves things as they were, and is told once."""

    def __init__(self, path: Path, setting: str, parse: Callable[[bytes], T], now: Callable[[], float]) -> None:
        self.path = path
        self._setting = setting
        self._parse = parse
        self._now = now
        self._stamp = file_stamp(path)
        self._value = self._read()
        self._looked_at = now()
        self.changes = 0  # how often it was read anew

    def value(self) -> T:
        now = self._now()
        if abs(now - self._looked_at) >= limits.FILE_CHECK_SECONDS:
            self._looked_at = now
            self.refresh()
        return self._value

    def refresh(self) -> None:
        """Look now."""
        stamp = file_stamp(self.path)
        if stamp == self._stamp or stamp is None:
            return
        self._stamp = stamp
        try:
            self._value = self._read()
        except ConfigurationError as error:
            log.warning("%s is kept as it was: %s", self._setting, error)
            return
        self.changes += 1
        log.info("%s was read anew", self._setting)

    def _read(self) -> T:
        try:
            return self._parse(self.path.read_bytes())
        except OSError as error:
            raise self._unusable(error.strerror or "it cannot be read") from None
        except WaypostError as error:
            raise self._unusable(error.message) from None
        except ValueError as error:
            raise self._unusable(str(error) or "it cannot be understood") from None

    def _unusable(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"The file of {self._setting} cannot be used ({self.path.name}): {why.rstrip('.')}.",
            path=self._setting,
            hint=f"See docs/reference/settings.md for what {self._setting} is.",
        )


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """What tells one state of a file from the next; None while it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

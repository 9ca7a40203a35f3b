"""A file that is reloaded when it changes on disk."""

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

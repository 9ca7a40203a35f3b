"""Private files (mode 0600) in private folders (mode 0700), whatever the umask, a repair of those that are not, and files that
are reloaded when they change on disk."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

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
    make_folder(path.parent)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _write_temporary(path: Path, content: bytes) -> Path:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    create_private(fresh, content)
    return fresh


def open_private(path: Path) -> BinaryIO:
    """Open a file for writing, truncated, with mode 0600. Raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(file, 0o600)  # an existing one keeps its mode otherwise
    return open(file, "wb")


def make_folder(folder: Path) -> None:
    """Create the folder and its missing parents with mode 0700."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


# --- Files that other users can read --------------------------------------------------------------

_OTHERS = 0o077


def find_exposed(folder: Path, names: Collection[str]) -> list[tuple[Path, int]]:
    """Files and folders with a mode that lets other users in: the folder itself, and all below its entries `names`. Symbolic
    links are not followed; a folder with the sticky bit, such as /tmp, is shared on purpose."""
    found = []
    for path in (folder, *_walk(folder, names)):
        try:
            mode = path.lstat().st_mode
        except OSError:
            continue  # removed meanwhile
        if not stat.S_ISLNK(mode) and mode & _OTHERS and not mode & stat.S_ISVTX:
            found.append((path, stat.S_IMODE(mode)))
    return found


def restrict_modes(folder: Path, names: Collection[str]) -> tuple[list[Path], list[Path]]:
    """Remove the permissions of other users. Returns the paths that were changed, and those that could not be."""
    changed, failed = [], []
    for path, mode in find_exposed(folder, names):
        try:
            path.chmod(mode & ~_OTHERS)
        except OSError:
            failed.append(path)
        else:
            changed.append(path)
    return changed, failed


def _walk(folder: Path, names: Collection[str]) -> Iterator[Path]:
    for name in sorted(names):
        path = folder / name
        yield path
        if path.is_dir() and not path.is_symlink():
            for parent, folders, files in os.walk(path):
                yield from (Path(parent, each) for each in sorted((*folders, *files)))


# --- Files that are reloaded ----------------------------------------------------------------------

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

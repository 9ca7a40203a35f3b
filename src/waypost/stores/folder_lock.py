"""One process for each data folder. The lock belongs to an open file, so it vanishes with the process, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from waypost.errors import ConfigurationError

LOCK_FILE = "waypost.lock"


class FolderLock:
    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._file: int | None = None

    def take(self) -> None:
        """Hold the folder, or say which process does."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip()
            os.close(file)
            raise ConfigurationError(
                f"The data folder {self._path.parent} is in use by another process{f' ({holder})' if holder else ''}.",
                path="data",
                hint="Stop that process, or choose another folder with --data.",
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"pid {os.getpid()}\n".encode("ascii"), 0)
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

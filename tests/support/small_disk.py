"""A small disk: a tmpfs, if one can be mounted."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE_MIB = 8


def can_mount() -> bool:
    """Whether this process may mount a file system; containers often may not, even as root."""
    return os.geteuid() == 0 and shutil.which("unshare") is not None and _tried_mount()


def _tried_mount() -> bool:
    trial = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    return trial.returncode == 0


@contextmanager
def small_disk(folder: Path, mib: int = SIZE_MIB) -> Iterator[Path]:
    """`folder` as a file system of this many MiB."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Ballast:
    """A file that occupies space until it is removed."""

    def __init__(self, folder: Path, mib: int) -> None:
        self._path = folder / "ballast"
        self._path.write_bytes(b"\xff" * (mib * 1024 * 1024))

    def drop(self) -> None:
        self._path.unlink()

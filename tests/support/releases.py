"""Earlier releases, taken from the history of the repository."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def unpack_release(commit: str, folder: Path) -> Path:
    """The folder to import the package of this commit from."""
    command = ["git", "-C", str(_ROOT), "archive", commit, "src/waypost"]
    archived = subprocess.run(command, capture_output=True, timeout=60, check=False)
    if archived.returncode and "CI" not in os.environ:
        pytest.skip(f"the history of this checkout has no {commit}")
    assert archived.returncode == 0, archived.stderr.decode()
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"

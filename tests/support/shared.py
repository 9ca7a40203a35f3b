"""Vectors and data sets that other projects publish. They are not part of this project; they lie in a folder beside it.

`WAYPOST_SHARED` names that folder; the default is `../shared`. Where it is missing, tests that need it are skipped, except in
CI (`CI=true`): there they fail, so that a check cannot disappear silently.
"""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


class SharedFolderMissing(FileNotFoundError):
    """The folder, or the file below it, does not exist."""


def shared_folder() -> Path:
    folder = Path(os.environ.get("WAYPOST_SHARED") or _ROOT.parent / "shared")
    if not folder.is_dir():
        raise SharedFolderMissing(
            f"{folder} does not exist. It holds the vectors and data sets of other projects: name it in WAYPOST_SHARED."
        )
    return folder


def shared_path(name: str) -> Path:
    """A file or folder below the shared folder, such as `vectors/jcs`."""
    path = shared_folder() / name
    if not path.exists():
        raise SharedFolderMissing(f"{path} does not exist.")
    return path


def require_shared(name: str) -> Path:
    """`shared_path` for tests: a missing folder skips the test, or the whole module if called while it is imported."""
    try:
        return shared_path(name)
    except SharedFolderMissing as error:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            raise
        import pytest  # benchmarks import this module, too

        pytest.skip(str(error), allow_module_level=True)

"""A folder for what is expensive to build: filled indices and stores, and the figures of building them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Figures = dict[str, float]
_FILLED = "filled"


@contextmanager
def work_folder(parent: Path | None, name: str) -> Iterator[Path]:
    """A folder of that name in `parent`, which the next run reuses; without `parent`, a temporary one."""
    if parent is not None:
        folder = parent / name
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="waypost-bench-") as temporary:
        yield Path(temporary)


def build_once(folder: Path, make: Callable[[], Figures], is_good: Callable[[], bool]) -> Figures:
    """The figures of `make`: of an earlier run, if its folder is still valid, else of now."""
    told = folder / "made.json"
    if told.exists() and is_good():
        known: Figures = json.loads(told.read_text(encoding="utf-8"))
        return known
    figures = make()
    told.write_text(json.dumps(figures), encoding="utf-8")
    return figures


def start_anew(folder: Path) -> None:
    """Remove what an earlier run left."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def mark_filled(folder: Path) -> None:
    (folder / _FILLED).touch()


def is_filled(folder: Path) -> bool:
    """Whether a run that filled the service in this folder came to its end."""
    return (folder / _FILLED).exists()


def index_of(folder: Path) -> Path:
    """The search index of the service in this folder."""
    return service_of(folder) / "index"


def service_of(folder: Path) -> Path:
    """The data folder of the service in this folder."""
    return folder / "waypost"

"""Where a run keeps what is dear to make: filled indices and stores, and the figures of their making."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Figures = dict[str, float]


@contextmanager
def workplace(kept: Path | None, name: str) -> Iterator[Path]:
    """A folder of that name, which the next run finds again; without `kept`, one that is gone afterwards."""
    if kept is not None:
        place = kept / name
        place.mkdir(parents=True, exist_ok=True)
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="waypost-bench-") as folder:
        yield Path(folder)


def made_once(place: Path, make: Callable[[], Figures], is_good: Callable[[], bool]) -> Figures:
    """What `make` told when it filled this place: now, or in an earlier run, if what that left is still good."""
    told = place / "made.json"
    if told.exists() and is_good():
        known: Figures = json.loads(told.read_text(encoding="utf-8"))
        return known
    figures = make()
    told.write_text(json.dumps(figures), encoding="utf-8")
    return figures

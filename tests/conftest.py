"""What every test may ask for: the default sentence model, decoded once for all tests of a process."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is loaded, as the product does

from pathlib import Path

import pytest

from waypost.embedders.choice import choose
from waypost.search.embedding import Space


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of decoded models, as a service keeps it below its data."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def spaces(models: Path) -> tuple[Space, ...]:
    """The spaces of the default embedder, loaded. Vectors are made as agents come: nothing works in the background here."""
    chosen = choose("use", models).spaces
    for space in chosen:
        space.embedder.encode(["load"])
    return tuple(space._replace(is_quick=True) for space in chosen)

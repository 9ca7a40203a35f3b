"""Test vectors: those of this project (`tests/vectors`) and those of others (`support.shared`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.shared import require_shared

_OWN = Path(__file__).resolve().parents[1] / "vectors"


def load_own_vectors(name: str) -> Any:
    return json.loads((_OWN / f"{name}.json").read_bytes())


def load_shared_vectors(path: str) -> Any:
    """Vectors of another project. Skips the test where the shared folder is missing."""
    return json.loads(require_shared(f"vectors/{path}.json").read_bytes())


def naughty_strings() -> list[str]:
    """The Big List of Naughty Strings."""
    strings: list[str] = load_shared_vectors("blns/blns")
    return strings

"""The Wycheproof vectors, case by case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

VECTORS = Path(__file__).parents[1] / "vectors"


def load(name: str) -> Any:
    return msgspec.json.decode((VECTORS / name).read_bytes())


def groups(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load(f"wycheproof/{name}_test.json")["testGroups"]
    return found


def cases(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each case with the group that it stands in."""
    for group in groups(name):
        for case in group["tests"]:
            yield group, case

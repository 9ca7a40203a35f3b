"""The Wycheproof vectors, case by case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from support.vectors import load_shared_vectors


def groups(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load_shared_vectors(f"wycheproof/{name}_test")["testGroups"]
    return found


def cases(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each case with its group."""
    for group in groups(name):
        for case in group["tests"]:
            yield group, case

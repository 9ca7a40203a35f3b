"""The requirements of the specifications: id, level and rule. Generated from the project's list of requirements."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

import msgspec


class Rule(msgspec.Struct, frozen=True):
    """One requirement."""

    id: str
    level: str
    text: str


class SpecificationRules(msgspec.Struct, frozen=True):
    """The requirements of one specification."""

    name: str
    title: str
    rules: tuple[Rule, ...]


@lru_cache(maxsize=1)
def load_rules() -> dict[str, SpecificationRules]:
    """The requirements by the name of their specification."""
    content = files("waypost.conformance").joinpath("rules.json").read_bytes()
    return {row.name: row for row in msgspec.json.decode(content, type=tuple[SpecificationRules, ...])}

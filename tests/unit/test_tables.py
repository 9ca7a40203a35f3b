"""Tables of public facts are what scripts/tables.py makes of their sources."""

from __future__ import annotations

from pathlib import Path

import tables
from support.shared import require_shared


def rows(table: Path) -> list[str]:
    header, *lines = table.read_text("ascii").split("do not edit.\n")
    assert "Facts from" in header
    return lines[0].splitlines()


def test_special_networks_are_those_of_the_iana_registries() -> None:
    require_shared("vectors/iana")
    assert rows(tables.SPECIAL_NETWORKS) == tables.special_networks()


def test_confusable_characters_are_those_of_unicode() -> None:
    require_shared("vectors/unicode")
    assert rows(tables.CONFUSABLES) == tables.confusables()

"""Syntax that not every supported Python version accepts is not used."""

from __future__ import annotations

import re
from pathlib import Path

import waypost

SOURCES = sorted(Path(waypost.__file__).parent.rglob("*.py"))


def test_no_group_is_possessive() -> None:
    """Python before 3.11.5, as Debian 12 has it, matches `(…)*+` wrongly (gh-106052); single characters (`[…]*+`) it does not."""
    found = [
        f"{path.name}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"(?<!\()\)[*+?]\+|\(\?>", line)  # `()*+` are signs of a path
    ]
    assert len(SOURCES) > 100
    assert not found

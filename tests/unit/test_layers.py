"""Rules of the architecture that import-linter cannot see."""

from __future__ import annotations

import re
from pathlib import Path

import waypost

PACKAGE = Path(waypost.__file__).parent
REACH_THROUGH = re.compile(r"registry\.(store|ranker|catalog|catalogue|seal|_\w+)\b")


def test_nothing_reaches_through_the_registry_into_its_parts() -> None:
    """APIs talk to the facade; the parts behind it can change without them."""
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if "registry" not in path.relative_to(PACKAGE).parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if REACH_THROUGH.search(line) and not line.lstrip().startswith(("from waypost.", "import waypost."))
    ]
    assert found == []

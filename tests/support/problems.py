"""Checks that every API makes of problem documents."""

from __future__ import annotations

import json
from typing import Any


def complete(told: dict[str, Any]) -> None:
    """A problem has message, path and hint, and reveals no internals."""
    for member in ("message", "path", "hint", "correlation_id"):
        assert told.get(member), f"{member} is missing: {told}"
    assert told["message"].endswith((".", "?"))
    assert "Traceback" not in told["message"]
    assert "/src/" not in json.dumps(told)

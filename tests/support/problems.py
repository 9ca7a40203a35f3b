"""What every refusal must say, whichever way it came."""

from __future__ import annotations

import json
from typing import Any


def complete(told: dict[str, Any]) -> None:
    """A problem says what, where and what to do, and nothing of the inside."""
    for member in ("message", "path", "hint", "correlation_id"):
        assert told.get(member), f"{member} is missing: {told}"
    assert told["message"].endswith((".", "?"))
    assert "Traceback" not in told["message"]
    assert "/src/" not in json.dumps(told)

"""Fenced blocks of a document, so that tests can run them."""

from __future__ import annotations

import re
from pathlib import Path

_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)


def fenced_blocks(path: Path, info: str) -> list[str]:
    """The bodies of the blocks whose opening fence says exactly `info`, in order."""
    return [found["body"] for found in _FENCE.finditer(path.read_text(encoding="utf-8")) if found["info"] == info]

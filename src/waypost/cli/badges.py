"""How far an agent was verified, as one word for people."""

from __future__ import annotations

from rich.text import Text

from waypost.model.verdict import BADGES

STYLES = {"verified": "bold green", "self_asserted": "yellow", "failed": "bold red"}


def word(level: str | None) -> str:
    """`verified`, `claimed` or `FAILED`; a level that is not known here is not made better than it is."""
    return BADGES.get(level or "self_asserted", "claimed")


def badge(level: str | None) -> Text:
    return Text(word(level), style=STYLES.get(level or "self_asserted", ""))

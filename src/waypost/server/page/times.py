"""Instants on a page: written out whole, so that a page stays the same while nothing changes. A script says how long ago."""

from __future__ import annotations

from waypost.model.times import find_instant, to_rfc3339
from waypost.server.page.markup import Html, el


def moment(at: float | str) -> Html:
    """A time element; a text that is no time stays a text."""
    instant = find_instant(at) if isinstance(at, str) else at
    if instant is None:
        return el("span", str(at))
    text = to_rfc3339(instant)
    return el("time", text[:16].replace("T", " "), " UTC", datetime=text)

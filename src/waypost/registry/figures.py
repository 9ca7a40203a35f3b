"""Figures of a registry, over what a caller sees."""

from __future__ import annotations

from typing import Any

from waypost.registry.catalogue import Catalogue

_STATUSES = ("active", "testing", "deprecated", "inactive", "suspended")


def figures_of(catalogue: Catalogue, audience: frozenset[str] | None) -> dict[str, Any]:
    by_status = {status: count for status in _STATUSES if (count := catalogue.count(audience, (status,)))}
    return {"agents": catalogue.count(audience, _STATUSES), "by_status": by_status}

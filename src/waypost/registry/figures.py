"""Figures of a registry, over what a caller sees."""

from __future__ import annotations

from typing import Any

from waypost.model.principal import INTERNAL, PRIVATE, PUBLIC
from waypost.registry.catalogue import Catalogue

_STATUSES = ("active", "testing", "deprecated", "inactive", "suspended")


def figures_of(catalogue: Catalogue, audience: frozenset[str] | None) -> dict[str, Any]:
    by_status = {status: count for status in _STATUSES if (count := catalogue.count(audience, (status,)))}
    total = catalogue.count(audience, _STATUSES)
    by_visibility = {
        tier: catalogue.count(frozenset((tier,)), _STATUSES)
        for tier in (PUBLIC, INTERNAL)
        if audience is None or tier in audience
    }
    by_visibility[PRIVATE] = total - sum(by_visibility.values())
    shown = {tier: count for tier, count in by_visibility.items() if count}
    return {"agents": total, "by_status": by_status, "by_visibility": shown}

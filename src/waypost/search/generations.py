"""Which audiences may get another answer than a moment ago. A change counts only for those who may see what changed, so that
nobody can tell by the clock that something hidden came or went."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy.typing as npt

from waypost.model.principal import PRIVATE, VISIBILITIES


class Generations:
    def __init__(self) -> None:
        self._all = 0
        self._scopes: dict[str, int] = {}

    def of(self, audience: frozenset[str] | None) -> tuple[int, ...]:
        if audience is None:
            return (self._all, sum(self._scopes.values()))
        shared = audience.intersection(VISIBILITIES)
        scopes = [*sorted(audience), PRIVATE] if len(shared) < len(audience) else sorted(audience)
        return (self._all, *(self._scopes.get(scope, 0) for scope in scopes))

    def everything(self) -> None:
        self._all += 1

    def seen_by(self, scopes: Iterable[str]) -> None:
        for scope in scopes:
            self._scopes[scope] = self._scopes.get(scope, 0) + 1

    def of_tiers(self, tiers: npt.NDArray[Any]) -> None:
        """Rows of these tiers changed. Of private ones it is not known here whose they are: all owners are told."""
        if len(tiers):
            self.seen_by(VISIBILITIES[number] for number in set(tiers.tolist()))

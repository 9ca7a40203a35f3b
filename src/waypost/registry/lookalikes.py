"""Names of verified agents, by what they look like: whose name could another agent be taken for?

Only public agents count, so that nobody learns of a hidden one by trying names. Whether two names look alike is decided by
`search.visible.skeleton`; what follows from it (a mark, a lower place) is decided elsewhere.
"""

from __future__ import annotations

from functools import lru_cache

from waypost import limits
from waypost.model.principal import PUBLIC
from waypost.model.registration import Entry
from waypost.search.visible import skeleton

_SHORT = 3  # a name of so few letters looks like many others

_looks = lru_cache(maxsize=limits.CANDIDATE_CACHE)(skeleton)


class Lookalikes:
    def __init__(self) -> None:
        # looks → owner → id → name. By owner: a thousand agents of one owner under one name are one step to look past.
        self._names: dict[str, dict[str, dict[str, str]]] = {}

    def put(self, entry: Entry) -> None:
        if _counts(entry):
            owners = self._names.setdefault(_looks(entry.name), {})
            owners.setdefault(entry.owner, {})[entry.id] = entry.name

    def remove(self, entry: Entry) -> None:
        if not _counts(entry):
            return
        looks = _looks(entry.name)
        owners = self._names.get(looks, {})
        held = owners.get(entry.owner, {})
        held.pop(entry.id, None)
        if not held:
            owners.pop(entry.owner, None)
        if not owners:
            self._names.pop(looks, None)

    def find(self, name: str, owner: str) -> str | None:
        """The name of a verified agent of somebody else that this name could be taken for. Equal names are the worst."""
        if not self._names:
            return None
        looks = _looks(name)
        if len(looks) <= _SHORT:
            return None
        for other, shown in self._names.get(looks, {}).items():
            if other != owner:
                return next(iter(shown.values()))
        return None


def _counts(entry: Entry) -> bool:
    return bool(entry.facts) and entry.visibility == PUBLIC and entry.trust == "verified"

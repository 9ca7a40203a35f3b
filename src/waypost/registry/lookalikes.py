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
        self._names: dict[str, dict[str, tuple[str, str]]] = {}  # looks → id → owner, name

    def put(self, entry: Entry) -> None:
        if _counts(entry):
            self._names.setdefault(_looks(entry.name), {})[entry.id] = (entry.owner, entry.name)

    def remove(self, entry: Entry) -> None:
        if _counts(entry):
            looks = _looks(entry.name)
            held = self._names.get(looks, {})
            held.pop(entry.id, None)
            if not held:
                self._names.pop(looks, None)

    def find(self, name: str, owner: str) -> str | None:
        """The name of a verified agent of somebody else that this name could be taken for. Equal names are the worst."""
        if not self._names:
            return None
        looks = _looks(name)
        if len(looks) <= _SHORT:
            return None
        for other, shown in self._names.get(looks, {}).values():
            if other != owner:
                return shown
        return None


def _counts(entry: Entry) -> bool:
    return bool(entry.facts) and entry.visibility == PUBLIC and entry.trust == "verified"

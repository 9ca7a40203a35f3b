"""Names of verified agents by what they look like: whose name could another agent be mistaken for?

Only public agents count, so that nobody finds a hidden one by trying names. `search.text.sanitize.skeleton` decides whether two
names look alike; the consequences (a warning, a lower rank) are decided elsewhere.
"""

from __future__ import annotations

from functools import lru_cache

from waypost import limits
from waypost.model.principal import PUBLIC
from waypost.model.registration import CatalogEntry
from waypost.search.text.sanitize import skeleton

_MIN_LETTERS = 4  # a shorter name looks like many others

_skeleton = lru_cache(maxsize=limits.NAME_SKELETON_CACHE)(skeleton)


class ConfusableNames:
    def __init__(self) -> None:
        # skeleton -> owner -> id -> name. By owner, so that `find` skips a thousand agents of one owner in one step.
        self._names: dict[str, dict[str, dict[str, str]]] = {}

    def put(self, entry: CatalogEntry) -> None:
        if _is_protected(entry):
            owners = self._names.setdefault(_skeleton(entry.name), {})
            owners.setdefault(entry.owner, {})[entry.id] = entry.name

    def remove(self, entry: CatalogEntry) -> None:
        if not _is_protected(entry):
            return
        looks = _skeleton(entry.name)
        owners = self._names.get(looks, {})
        names = owners.get(entry.owner, {})
        names.pop(entry.id, None)
        if not names:
            owners.pop(entry.owner, None)
        if not owners:
            self._names.pop(looks, None)

    def find(self, name: str, owner: str) -> str | None:
        """The name of another owner's verified agent that this name looks like, or equals."""
        if not self._names:
            return None
        looks = _skeleton(name)
        if len(looks) < _MIN_LETTERS:
            return None
        for other, names in self._names.get(looks, {}).items():
            if other != owner:
                return next(iter(names.values()))
        return None


def _is_protected(entry: CatalogEntry) -> bool:
    return bool(entry.facts) and entry.visibility == PUBLIC and entry.trust == "verified"

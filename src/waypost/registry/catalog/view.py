"""The catalog as the rest of the service reads it: read-only, and without agents whose lease has ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyroaring import BitMap

from waypost.model.names import looks_like_slug
from waypost.model.record import LISTED, STATUSES
from waypost.model.registration import TRUST_FACT, CatalogEntry
from waypost.registry.catalog.catalog import NO_ENTRY, Catalog, Position
from waypost.registry.ports import Clock


class CatalogView:
    """Every read drops expired entries first. It decides nothing about visibility: callers pass an audience or check."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._started_at = clock.now()

    def _current(self) -> Catalog:
        self._catalog.expire(self._clock.now())
        return self._catalog

    def __len__(self) -> int:
        return len(self._current())

    # --- Single entries --------------------------------------------------------------------------

    def find(self, agent_id: str) -> CatalogEntry | None:
        """The entry of a canonical id."""
        return self._current().find(agent_id)

    def find_named(self, key: str) -> CatalogEntry | None:
        """The entry of a canonical id, a path-safe id or an alias."""
        catalog = self._current()
        agent_id = catalog.resolve(key)
        return None if agent_id is None else catalog.find(agent_id)

    def candidates(self, key: str) -> list[CatalogEntry]:
        """The entries that a path segment may mean, first the one whose path-safe id it is (AF-14): otherwise anyone could
        take over an address by registering it as an id. `NO_ENTRY` stands for an absent one, so that a caller takes the
        same steps for hidden and absent agents and the response time reveals nothing (THREATS V2)."""
        catalog = self._current()
        names = (catalog.published(key) or key, key) if looks_like_slug(key) else (key,)
        return [catalog.find(catalog.resolve(name) or name) or NO_ENTRY for name in names]

    def find_short(self, name: str, audience: frozenset[str] | None) -> list[str]:
        """Ids that the audience may mean by a short name."""
        return self._current().find_short(name, audience)

    def near(self, name: str, audience: frozenset[str] | None) -> list[str]:
        """Ids with a similar name that the audience sees."""
        return self._current().near(name, audience)

    def is_alive(self, agent_id: str) -> bool:
        return self._current().is_alive(agent_id)

    def ids(self) -> list[str]:
        return list(self._current().ids())

    def __iter__(self) -> Iterator[CatalogEntry]:
        """All entries, as of the first one."""
        catalog = self._current()
        return filter(None, map(catalog.find, list(catalog.ids())))

    # --- What an audience sees -------------------------------------------------------------------

    def count(self, audience: frozenset[str] | None) -> int:
        return self._current().count(audience)

    def count_owned(self, owner: str) -> int:
        """Agents of a subject, regardless of who may see them."""
        return len(self._current().select(None, statuses=STATUSES, owner=owner))

    def owners_above(self, stored_bytes: float) -> list[str]:
        """The owners whose documents have more bytes, those with the most first."""
        return self._current().owners_above(stored_bytes)

    def ids_owned(self, owner: str) -> list[str]:
        catalog = self._current()
        return catalog.tags.ids_of(catalog.select(None, statuses=STATUSES, owner=owner))

    def count_trust(self, level: str) -> int:
        """Agents with this trust level, regardless of who may see them."""
        return len(self._current().facts.match_exact(TRUST_FACT, level))

    def generation(self, audience: frozenset[str] | None) -> int:
        """A number that changes whenever something that the audience sees changes, in this process."""
        return self._current().generation(audience)

    def fingerprint(self, audience: frozenset[str] | None) -> str:
        """A digest of what the audience sees, the same in every process."""
        return self._current().fingerprint(audience)

    def last_modified(self, audience: frozenset[str] | None) -> float:
        """The time of the newest change that the audience could see, removals included. If none is known, the list has been
        empty since the start."""
        modified_at = self._current().last_modified(audience)
        return self._started_at if modified_at is None else modified_at

    def page(
        self,
        audience: frozenset[str] | None,
        *,
        limit: int,
        offset: int = 0,
        after: Position | None = None,
        tags: Sequence[str] = (),
        ids: Iterable[str] | None = None,
    ) -> tuple[list[CatalogEntry], int]:
        """Listed entries in the order of (folded name, id), and how many there are in all."""
        return self._current().page(audience, limit=limit, offset=offset, after=after, tags=tags, ids=ids)

    # --- Sets of agents --------------------------------------------------------------------------
    #
    # An ordinal means the same agent until the next change. So use a selection before the next `await`, and combine it only
    # with the methods after `select`, which expire nothing.

    def select(self, audience: frozenset[str] | None, statuses: Sequence[str] = LISTED) -> BitMap:
        """Ordinals of the agents with one of the statuses that the audience sees."""
        return self._current().select(audience, statuses=statuses)

    def tagged(self, tags: Sequence[str], *, match_any: bool) -> BitMap:
        """Ordinals of the agents that carry all tags, or any of them."""
        groups = [(tag,) for tag in tags] if match_any else [tuple(tags)]
        return BitMap.union(BitMap(), *(self._catalog.tags.select(required=group) for group in groups))

    def ordinals(self, ids: Iterable[str]) -> BitMap:
        found = map(self._catalog.tags.ordinal, ids)
        return BitMap(ordinal for ordinal in found if ordinal is not None)

    def with_fact(self, kind: str, value: str) -> BitMap:
        """Ordinals of the agents with a fact, such as trust or health."""
        return self._catalog.facts.match_exact(kind, value)

    def active_since(self, oldest: float) -> BitMap:
        """Ordinals of the agents that were registered, changed or renewed since then."""
        return self._catalog.facts.active_since(oldest)

    def ids_of(self, ordinals: BitMap) -> list[str]:
        return self._catalog.tags.ids_of(ordinals)

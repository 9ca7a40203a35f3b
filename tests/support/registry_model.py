"""A minimal model of the registry: the oracle of the property tests.

It models owners, visibility, freshness and leases, without store, log and index. Expired agents and swept agents are the
same to it: no caller may be able to distinguish them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from waypost import errors, limits
from waypost.errors import WaypostError
from waypost.model.principal import ANONYMOUS, SCOPE_READ, SCOPE_WRITE, Principal
from waypost.server.auth.authenticator import ADMIN

ALICE = Principal(subject="alice", scopes=frozenset((SCOPE_READ, SCOPE_WRITE)))
BOB = Principal(subject="bob", scopes=frozenset((SCOPE_READ, SCOPE_WRITE)))
CAROL = Principal(subject="carol", scopes=frozenset((SCOPE_READ,)))
WRITERS = (ALICE, BOB, ADMIN)
READERS = (ADMIN, ALICE, BOB, CAROL, ANONYMOUS)


@dataclass(frozen=True)
class Held:
    """One agent. `mark` is the time of its metadata, `own_end` the expiry in its document."""

    owner: str
    visibility: str
    word: str
    mark: int
    ttl: int | None = None
    lease_end: int | None = None
    own_end: int | None = None

    @property
    def end(self) -> int | None:
        ends = [end for end in (self.lease_end, self.own_end) if end is not None]
        return min(ends) if ends else None

    def is_seen_by(self, who: Principal) -> bool:
        if who.is_admin or self.visibility == "public":
            return True
        return who.subject is not None and (self.visibility == "internal" or who.subject == self.owner)


@dataclass(frozen=True)
class Gone:
    """The tombstone of a withdrawn or expired agent."""

    owner: str
    mark: int
    hold_until: int


@dataclass
class Model:
    now: int
    _held: dict[str, Held] = field(default_factory=dict)
    _gone: dict[str, Gone] = field(default_factory=dict)

    def live(self) -> dict[str, Held]:
        for agent_id, held in list(self._held.items()):
            if held.end is not None and held.end <= self.now:
                hold = held.end + min(held.ttl or 0, limits.ID_HOLD_MAX_SECONDS)
                self._gone[agent_id] = Gone(held.owner, held.mark, hold)
                del self._held[agent_id]
        return self._held

    def seen_by(self, who: Principal) -> dict[str, Held]:
        return {agent_id: held for agent_id, held in self.live().items() if held.is_seen_by(who)}

    def last_mark(self, agent_id: str) -> int | None:
        """The newest metadata time of this id."""
        known = self.live().get(agent_id) or self._gone.get(agent_id)
        return known.mark if known else None

    # --- Writing: the outcome, or the kind of error ----------------------------------------------

    def publish(self, who: Principal, agent_id: str, news: Held, visibility: str | None) -> str | type[WaypostError]:
        """`news` is the sent record; its owner and visibility are ignored."""
        held = self.live().get(agent_id)
        if held is None:
            return self._create(who, agent_id, replace(news, visibility=visibility or "public"))
        if not _may_change(who, held.owner):
            return errors.OwnerConflict
        if news.word == held.word and news.mark == held.mark and visibility in (None, held.visibility):
            return self._renew(agent_id, news.ttl)
        if news.mark < held.mark:
            return errors.StaleMetadata
        ttl = news.ttl or held.ttl
        self._held[agent_id] = replace(
            news,
            owner=held.owner,
            visibility=visibility or held.visibility,
            ttl=ttl,
            lease_end=None if ttl is None else self.now + ttl,
        )
        return "updated"

    def _create(self, who: Principal, agent_id: str, news: Held) -> str | type[WaypostError]:
        gone = self._gone.get(agent_id)
        if gone is not None:
            if self.now < gone.hold_until and not _may_change(who, gone.owner):
                return errors.OwnerConflict
            if gone.owner == who.subject and news.mark < gone.mark:
                return errors.StaleMetadata
            del self._gone[agent_id]
        end = None if news.ttl is None else self.now + news.ttl
        self._held[agent_id] = replace(news, owner=who.subject or "", lease_end=end)
        return "created"

    def renew(self, who: Principal, agent_id: str, ttl: int | None) -> str | type[WaypostError]:
        refused = self._refusal(who, agent_id)
        return refused or self._renew(agent_id, ttl)

    def _renew(self, agent_id: str, asked: int | None) -> str:
        held = self._held[agent_id]
        ttl = asked or held.ttl
        if ttl is None:
            return "unchanged"
        self._held[agent_id] = replace(held, ttl=ttl, lease_end=self.now + ttl)
        return "refreshed"

    def withdraw(self, who: Principal, agent_id: str) -> str | type[WaypostError]:
        refused = self._refusal(who, agent_id)
        if refused is not None:
            return refused
        held = self._held.pop(agent_id)
        self._gone[agent_id] = Gone(held.owner, held.mark, self.now)
        return "withdrawn"

    def _refusal(self, who: Principal, agent_id: str) -> type[WaypostError] | None:
        held = self.live().get(agent_id)
        if held is None or not held.is_seen_by(who):
            return errors.NotFound
        return None if _may_change(who, held.owner) else errors.NotOwner


def _may_change(who: Principal, owner: str) -> bool:
    return who.is_admin or who.subject == owner

"""Changes that no segment holds yet, by who may see them: a question looks at its own and at nobody else's."""

from __future__ import annotations

from collections.abc import Iterable, KeysView

from waypost.model.registration import Registration


class Waiting:
    """The newest change of each agent, in the order in which they came."""

    def __init__(self) -> None:
        self._held: dict[str, Registration] = {}
        self._numbers: dict[str, dict[str, int]] = {}  # by scope, then id: when it came
        self._count = 0

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, agent_id: str) -> Registration:
        return self._held[agent_id]

    def get(self, agent_id: str) -> Registration | None:
        return self._held.get(agent_id)

    def ids(self) -> KeysView[str]:
        return self._held.keys()

    def all(self) -> list[Registration]:
        return list(self._held.values())

    def put(self, registration: Registration) -> None:
        self.drop(registration.id)
        self._held[registration.id] = registration
        self._count += 1
        for scope in registration.scopes:
            self._numbers.setdefault(scope, {})[registration.id] = self._count

    def drop(self, agent_id: str) -> None:
        held = self._held.pop(agent_id, None)
        for scope in held.scopes if held is not None else ():
            numbers = self._numbers[scope]
            del numbers[agent_id]
            if not numbers:
                del self._numbers[scope]

    def clear(self) -> None:
        self._held, self._numbers = {}, {}

    def count_seen_by(self, audience: frozenset[str] | None) -> int:
        """How many these are at most: one that several of its scopes lead to counts for each."""
        if audience is None:
            return len(self._held)
        return sum(len(self._numbers.get(scope, ())) for scope in audience)  # others may change it meanwhile

    def seen_by(self, audience: frozenset[str] | None) -> list[str]:
        """Ids of what an audience may see, the newest first. What it may not see takes none of its time."""
        if audience is None:
            return list(reversed(self._held))
        found: dict[str, int] = {}
        for scope in self._scopes_of(audience):
            found.update(self._numbers[scope])
        return sorted(found, key=found.__getitem__, reverse=True)

    def _scopes_of(self, audience: frozenset[str]) -> Iterable[str]:
        return (scope for scope in audience if scope in self._numbers)

"""How many agents an owner may have at a time. Counted in the process that writes: what it holds, and what is on its way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from waypost.errors import QuotaExceeded
from waypost.model.principal import Principal
from waypost.registry.catalogue import Catalogue

_NO_LIMIT = nullcontext()


class Quota:
    """`most` 0 is no limit. Admins have none."""

    def __init__(self, catalogue: Catalogue, most: int) -> None:
        self._catalogue = catalogue
        self._most = most
        self._coming: dict[str, set[str]] = {}  # by owner, ids of new agents that are being written

    def place(self, principal: Principal, keys: Sequence[str]) -> AbstractContextManager[None]:
        """Hold a place for the agent of these names while it is written, or refuse. An agent that is there needs none."""
        return self._place(principal, keys) if self._most and not principal.is_admin else _NO_LIMIT

    @contextmanager
    def _place(self, principal: Principal, keys: Sequence[str]) -> Iterator[None]:
        if any(self._catalogue.resolve(key) is not None for key in keys):
            yield
            return
        owner, agent_id = principal.subject or "", keys[0]
        coming = self._coming.setdefault(owner, set())
        self._check(owner, coming - {agent_id})
        coming.add(agent_id)
        try:
            yield
        finally:
            coming.discard(agent_id)
            if not coming:
                self._coming.pop(owner, None)

    def _check(self, owner: str, coming: set[str]) -> None:
        unseen = sum(not self._catalogue.is_alive(agent_id) for agent_id in coming)
        if self._catalogue.count_of_owner(owner) + unseen >= self._most:
            raise QuotaExceeded(
                f"An owner may have {self._most} agents here.",
                path="owner",
                hint="Withdraw some, or ask the operator for a higher agents_per_owner.",
            )

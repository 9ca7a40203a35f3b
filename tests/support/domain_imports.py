"""Registers agents by domain, with one zone and one web server. Shared by the tests of domain registration."""

from __future__ import annotations

from typing import Any

from support.resolve_fixtures import Bench
from support.service import Bench as Service
from waypost.domains.importer import DomainImporter, DomainRechecks
from waypost.model.principal import Principal
from waypost.model.registration import trust_of
from waypost.registry.importer import ImportRequest, ImportResult

ALICE = Principal(subject="alice", scopes=frozenset(("discover:read", "discover:write")))
BOB = Principal(subject="bob", scopes=frozenset(("discover:read", "discover:write")))
ADMIN = Principal(subject="root", scopes=frozenset(("admin",)))


class Registering:
    def __init__(self, made: Service, bench: Bench) -> None:
        self.service = made
        self.registry = made.registry
        self.rechecks = DomainRechecks(made.registry, bench.resolver, seconds=1000.0, chance=lambda: 0.5)
        self.importer = DomainImporter(
            made.registry, bench.fetcher, bench.resolver, self.rechecks, discreet_seconds=0.0, domain_seconds=0.0
        )

    async def take(self, name: str, principal: Principal = ALICE, **how: Any) -> ImportResult:
        return await self.importer.find(principal, ImportRequest(url=name, **{"save": True, **how}))

    async def level(self, agent_id: str) -> str:
        held = await self.registry.get(ADMIN, agent_id)
        return trust_of(held).level

    async def checks(self, agent_id: str) -> dict[str, str]:
        held = await self.registry.get(ADMIN, agent_id)
        return {each.check: each.state for source in held.sources for each in source.verdicts}

    async def later(self, seconds: float) -> None:
        self.service.clock.advance(seconds)
        await self.rechecks.recheck()

"""The part of the client for whoever writes zones: the DNS records that lead to an agent."""

from __future__ import annotations

from collections.abc import Iterable

from waypost.client.aio.connection import Connection
from waypost.client.calls import Call, agent_path, json_of, present
from waypost.client.zones import AgentZone, zone_of


class ZoneCalls:
    _connection: Connection

    async def zone(
        self,
        id: str,  # noqa: A002
        format: str = "bind",  # noqa: A002
        *,
        target: str | None = None,
        port: int | None = None,
        ttl: int | None = None,
        org: str | None = None,
        addresses: Iterable[str] = (),
        spki: Iterable[str] = (),
    ) -> AgentZone:
        """The DNS records that lead to an agent, by its id or its domain, as text for `bind`, `managed` or `terraform`.

        `spki` are SHA-256 digests in hex of the keys of certificates that TLSA shall name; without them it is the
        certificate of the service.
        """
        params = present(
            format=format, target=target, port=port, ttl=ttl, org=org, address=tuple(addresses), spki=tuple(spki)
        )
        call = Call(method="GET", path=agent_path(id, ":zone"), params=params)
        return zone_of(json_of(await self._connection.send(call)))

"""What listens on the LAN and on the bus, in the process that writes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from waypost import limits
from waypost.app.core import Core
from waypost.app.ground import Ground
from waypost.app.ways_out import WaysOut
from waypost.errors import FetchFailed
from waypost.late import late_module
from waypost.net.outgoing import Outgoing
from waypost.server.lan import Lan

if TYPE_CHECKING:
    from waypost.transports import bus_login, lan
    from waypost.transports.port import Transport
else:
    bus_login, lan = late_module("waypost.transports.bus_login"), late_module("waypost.transports.lan")


def make_lan(ground: Ground, core: Core, ways_out: WaysOut) -> Lan | None:
    transports = _make_transports(ground, core, ways_out.outgoing) if ground.writes else []
    if not transports:
        return None
    settings = ground.settings
    heard = Lan(
        core.registry,
        core.renderer,
        transports,
        anonymous_read=settings.anonymous_read or settings.open,
        publish=settings.mdns_publish,
    )
    core.registry.chore(limits.MDNS_TTL_SECONDS / 2, heard.publish)
    heard.show(core.metrics)
    return heard


def _make_transports(ground: Ground, core: Core, outgoing: Outgoing) -> list[Transport]:
    settings, clock, base_url = ground.settings, ground.clock, core.renderer.base_url
    transports: list[Transport] = []
    if settings.mdns:
        transports.append(
            lan.make_mdns(
                settings.mdns_interfaces,
                clock,
                pointer=lambda agent_id: f"{base_url}/agents/{agent_id}",
                fetch=_pointer_fetcher(outgoing),
            )
        )
    if settings.udp:
        transports.append(lan.make_udp(settings.udp_interface, clock, settings.udp_port, ipv6=settings.udp_ipv6))
    if settings.bus is not None:
        group, login = settings.bus_group, bus_login.login_of(settings)
        transports.append(lan.make_bus(settings.bus, clock, topic=settings.bus_topic, group=group, login=login))
    return transports


def _pointer_fetcher(outgoing: Outgoing) -> Callable[[str], Coroutine[Any, Any, bytes]]:
    """How an announcement is fetched that a record of mDNS only points at: as everything else is."""

    async def fetch(url: str) -> bytes:
        found = await outgoing.fetch(url, "card")
        if not found.is_success:
            raise FetchFailed(f"The pointer leads to status {found.status}.", path="mdns", hint="Ask the agent itself.")
        return found.body

    return fetch

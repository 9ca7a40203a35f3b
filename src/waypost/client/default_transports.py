"""The transports of a program that names none: mDNS, and the registry that the command would use."""

from __future__ import annotations

from pathlib import Path

from waypost.client.clock import WallClock
from waypost.client.registry_transport import make_registry_transport, pointer_fetcher, pointer_url
from waypost.settings import load_connection_settings, load_settings
from waypost.transports.factory import TRANSPORTS, TransportContext
from waypost.transports.port import Transport


def default_transports(data: Path) -> list[Transport]:
    """mDNS, if the extra `lan` is installed, and the registry of the settings.

    Args:
        data: The data folder in which a local service wrote its admin token.
    """
    clock = WallClock()
    address = load_connection_settings({"data": data})
    transports: list[Transport] = [make_registry_transport(address, clock, is_socket=False)]
    if TRANSPORTS["mdns"].is_installed:
        context = TransportContext(clock=clock, pointer=pointer_url(address), fetch=pointer_fetcher([address]))
        transports.insert(0, TRANSPORTS["mdns"].make(load_settings({"data": data}), context))
    return transports

"""Which protocols an agent speaks, and where: the zone names the host and the port, the documents the path."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit, urlunsplit

from waypost.domains.zone import DEFAULT_PORT, ExtraProtocol
from waypost.model.json import JsonObject
from waypost.model.names import domain_of
from waypost.model.record import AgentRecord, Binding
from waypost.protocols.codec import sort_by_priority
from waypost.protocols.dns_rdata import is_hostname

_LABELS = {"mcp": "mcp", "https": "https", "agp": "a2a"}  # by protocol of a binding; `a2a+jsonrpc` and the like are a2a

_PATH_PROTOCOLS = {"a2a": "a2a", "a2a+jsonrpc": "a2a", "mcp": "mcp"}  # whose messages are posted to one path


def spoken_protocols(record: AgentRecord, relay: str) -> tuple[ExtraProtocol, ...]:
    """The protocols that the agent itself speaks, each at the host of its first binding. `relay` is the host of this service:
    conversations that it relays do not make it a speaker of A2A."""
    found: dict[str, ExtraProtocol] = {}
    for binding, where in _addressed_bindings(record):
        label = "a2a" if binding.protocol.startswith("a2a") else _LABELS.get(binding.protocol)
        host, port = _place(where)
        if label is None or where.scheme not in ("https", "wss") or not is_hostname(host) or is_address(host):
            continue
        if binding.protocol == "agp" and host == relay and domain_of(record.id) != relay:
            continue
        found.setdefault(label, ExtraProtocol(protocol=label, host=host, port=port))
    return tuple(found.values())


def endpoint_paths(record: AgentRecord, relay: str, origin: str) -> JsonObject:
    """The paths of protocols that the agent speaks at an origin, by label. DNS-AID clients join a path in the `endpoints` of a
    document to the host and the port of the SVCB record, so an endpoint elsewhere has none."""
    here = _place(urlsplit(origin))
    labels = {each.protocol for each in spoken_protocols(record, relay) if (each.host, each.port) == here}
    paths: JsonObject = {}
    for binding, where in _addressed_bindings(record):
        label = _PATH_PROTOCOLS.get(binding.protocol)
        if label is None or label not in labels or where.scheme != "https" or _place(where) != here:
            continue
        if where.path not in ("", "/"):
            paths.setdefault(label, urlunsplit(("", "", where.path, where.query, "")))
    return paths


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _addressed_bindings(record: AgentRecord) -> Iterator[tuple[Binding, SplitResult]]:
    """The bindings whose endpoint can be split, best first. An endpoint may be any URI, also a malformed one. Where the document
    that a catalog names is served, the agent need not be."""
    for binding in sort_by_priority(record.bindings):
        if binding.is_link:
            continue
        try:
            where = urlsplit(binding.endpoint)
            _place(where)
        except ValueError:  # brackets, the port, or characters that look like others
            continue
        yield binding, where


def _place(url: SplitResult) -> tuple[str, int]:
    return (url.hostname or "").lower(), url.port or DEFAULT_PORT

"""The publisher of an agent as its id or endpoint names it: a domain. A claim, unless the trust checks prove it.

The subject that registered an agent is no business of other readers, so pages name the publisher instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from waypost.model.record import AgentRecord
from waypost.registry.ports import CommittedChange
from waypost.registry.registry import Registry

_EVERYTHING = "*"
_DOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+\Z")
_REVERSED = re.compile(r"([a-z]{2,6}(?:\.[a-z0-9-]+)+)/\S+\Z")


def find_publisher(agent_id: str) -> str | None:
    """The domain in an id: of a URL, `agent:DOMAIN`, `urn:air:DOMAIN:…`, `DOMAIN/name` or a reversed name (`com.example/x`)."""
    text = agent_id.lower()
    if text.startswith(("http://", "https://")):
        return _parse_domain(_host_of(text))
    if text.startswith("agent:"):
        return _parse_domain(text.removeprefix("agent:"))
    if text.startswith("urn:air:"):
        return _parse_domain(text.removeprefix("urn:air:").partition(":")[0])
    first = text.partition("/")[0]
    if "@" in text and _DOMAIN.match(first):  # OASF: domain/path@version
        return first
    if (found := _REVERSED.match(text)) is not None:
        return _parse_domain(".".join(reversed(found[1].split("."))))
    return None


def find_publisher_of(record: AgentRecord) -> str | None:
    """The domain in its id, else that of its first endpoint."""
    hosts = (_parse_domain(_host_of(binding.endpoint.lower())) for binding in record.bindings)
    return find_publisher(record.id) or next((host for host in hosts if host), None)


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _parse_domain(text: str) -> str | None:
    domain = text.rstrip(".")
    return domain if _DOMAIN.match(domain) and not domain.replace(".", "").isdigit() else None


class PublisherIndex:
    """Ids by scope and publisher. Each scope has its own lists, so that hidden agents change neither result nor time (P8)."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._ids: dict[tuple[str, str], dict[str, None]] = {}
        self._keys: dict[str, list[tuple[str, str]]] = {}  # by id: the lists that have it
        self._is_filled = False
        registry.subscribe(self._on_change)

    def others(self, agent_id: str, audience: frozenset[str] | None, most: int) -> list[str]:
        """Ids of the same publisher that the audience may see, at most so many."""
        publisher = find_publisher(agent_id)
        if publisher is None:
            return []
        self._fill()
        scopes = (_EVERYTHING,) if audience is None else sorted(audience)
        found: dict[str, None] = {}
        for scope in scopes:
            for other in self._ids.get((scope, publisher), ()):
                if other != agent_id:
                    found[other] = None
                if len(found) >= most:
                    return list(found)
        return list(found)

    def _fill(self) -> None:
        """Load once on first use, so that start-up does not wait."""
        if not self._is_filled:
            self._is_filled = True
            for entry in self._registry.entries:
                self._put(entry.id, entry.scopes)

    def _on_change(self, committed: CommittedChange) -> None:
        if not self._is_filled:
            return
        event, registration = committed.event, committed.registration
        self._forget(event.id)
        if registration is not None and event.type not in ("withdrawn", "expired"):
            self._put(registration.id, registration.scopes)

    def _put(self, agent_id: str, scopes: Iterable[str]) -> None:
        publisher = find_publisher(agent_id)
        if publisher is None:
            return
        keys = [(scope, publisher) for scope in {*scopes, _EVERYTHING}]
        self._keys[agent_id] = keys
        for key in keys:
            self._ids.setdefault(key, {})[agent_id] = None

    def _forget(self, agent_id: str) -> None:
        for key in self._keys.pop(agent_id, ()):
            ids = self._ids[key]
            ids.pop(agent_id, None)
            if not ids:
                del self._ids[key]

"""What ties documents to the agent of a domain, and what does not.

A tie rests on what this service fetched itself: the agent's own documents from its domain, and a document or a catalogue of the
same organisation that is at, or points at, one of their places. What a caller says of a document ties nothing, and neither
does a catalogue of somebody else. Pure: who holds what is looked up by `joining`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from waypost.model.merge import only_points
from waypost.model.names import domain_of
from waypost.model.record import AgentRecord
from waypost.registry.publication import DOMAIN_VIA, IMPORT_VIA
from waypost.trust.domains import registrable_of

FETCHED: Final = frozenset((IMPORT_VIA, DOMAIN_VIA))  # how a document came that this service fetched itself
USUAL_PLACES: Final = ("/.well-known/agent.json", "/.well-known/agent-card.json")


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was fetched: from where, and what it says."""

    url: str
    record: AgentRecord
    names: tuple[str, ...] = ()  # its id and aliases


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the agent of a domain, from its own documents."""

    domain: str
    places: frozenset[str] = (
        frozenset()
    )  # where documents of it are: those that were fetched, and the usual ones beside them
    names: frozenset[str] = frozenset()  # ids and endpoints at its own host that its documents give
    endpoints: frozenset[str] = frozenset()

    @property
    def agent(self) -> str:
        return f"agent:{self.domain}"


def home_of(domain: str, documents: Iterable[Told]) -> Home:
    """Of an agent by the documents that its domain led to."""
    told = list(documents)
    fetched = {plain_url(each.url) for each in told if "://" in each.url}
    origins = {f"https://{domain}", *(_origin(url) for url in fetched if host_of(url) == domain)}
    endpoints = {
        plain_url(binding.endpoint)
        for each in told
        for binding in each.record.bindings
        if not binding.extra.get("unresolved") and host_of(binding.endpoint) == domain
    }
    ids = {name for each in told for name in each.names if domain_of(name) == domain}
    own = {url for url in fetched if host_of(url) == domain}
    return Home(
        domain=domain,
        places=frozenset((*fetched, *(origin + path for origin in origins for path in USUAL_PLACES))),
        names=frozenset((*ids, *endpoints, *own)),
        endpoints=frozenset(endpoints),
    )


def find_tie(home: Home, told: Told, organisation: str | None = None) -> str | None:
    """Why a document is of the agent of that home; None where nothing ties it. `organisation` stands behind the document, where
    it is another one than the host that it came from: its DNS led there."""
    speaker = organisation or host_of(told.url)
    if speaker is None or not is_of_organisation(speaker, home.domain):
        return None
    if not only_points(told.record):
        return _find_own_tie(home, told)
    if any(plain_url(binding.endpoint) in home.places for binding in told.record.bindings):
        return f"{told.url or speaker} points at the document of {home.domain}"
    return None


def _find_own_tie(home: Home, told: Told) -> str | None:
    """A document that was found where the agent's are, or that gives its endpoints and no others."""
    if plain_url(told.url) in home.places:
        return f"it was found at {told.url}"
    endpoints = {plain_url(binding.endpoint) for binding in told.record.bindings}
    if endpoints & home.endpoints and all(host_of(each) == home.domain for each in endpoints):
        return f"it gives endpoints that the document of {home.domain} gives"
    return None


def is_of_organisation(host: str, domain: str) -> bool:
    """Whether two names have one owner, as far as names tell."""
    return registrable_of(host) == registrable_of(domain)


def places_of(record: AgentRecord) -> list[str]:
    """The hosts that a document speaks of, each once."""
    hosts = (host_of(binding.endpoint) for binding in record.bindings)
    return list(dict.fromkeys(host for host in hosts if host is not None))


def points_home(record: AgentRecord) -> str | None:
    """The host whose own document a pointer leads to: one of the usual places there, and nothing else."""
    if not only_points(record):
        return None
    endpoint = record.bindings[0].endpoint
    return host_of(endpoint) if urlsplit(plain_url(endpoint)).path in USUAL_PLACES else None


def host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def plain_url(url: str) -> str:
    """Without what makes no difference: case of scheme and host, the usual port, a fragment."""
    try:
        parts = urlsplit(url.partition("#")[0])
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return url
    usual = {"https": 443, "wss": 443, "http": 80, "ws": 80}.get(parts.scheme)
    where = host if port in (None, usual) else f"{host}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{where}{parts.path or '/'}{query}" if where else url


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"

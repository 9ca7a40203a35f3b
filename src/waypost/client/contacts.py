"""Where an agent can be talked to, and by which key it is known: as somebody said, or as a registry says."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import httpx2
import msgspec

from waypost.client.aio.client import Client
from waypost.domains.resolver import DomainResolver
from waypost.errors import FetchFailed, FingerprintMismatch, InvalidKey, NotFound, Unavailable, WaypostError
from waypost.messaging.peers import KeySource, PeerIdentity, find_dns_key
from waypost.model.json import JsonObject, parse_object
from waypost.model.names import domain_of
from waypost.model.resolution import Resolution
from waypost.trust.checks.adp import FINGERPRINT, parse_full_key

_VERIFIED = "verified"
_ADDRESSES: Final[tuple[Literal["A"], Literal["AAAA"]]] = ("A", "AAAA")


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    url: str | None = None  # None: it can be recognised, but not called
    address: str | None = None  # where the host of the url is, when somebody else than the system was asked
    key: PeerIdentity | None = None
    token: str | None = None


class Contacts(Protocol):
    async def find(self, agent: str) -> Contact | None: ...


class StaticContacts:
    """What somebody was told by other means."""

    def __init__(self) -> None:
        self._known: dict[str, Contact] = {}

    def add(
        self, agent: str, *, url: str | None, fingerprint: str | None, token: str | None = None, by: KeySource = "given"
    ) -> None:
        if fingerprint is not None and not FINGERPRINT.match(fingerprint):
            raise InvalidKey(
                f"{fingerprint[:60]!r} is no fingerprint.",
                path="fingerprint",
                hint="Write ed25519: and the 43 characters of base64url.",
            )
        key = None
        if fingerprint is not None:
            key = PeerIdentity(agent=agent, fingerprint=fingerprint, by=by, domain=domain_of(agent) or "")
        self._known[agent] = Contact(agent=agent, url=url, key=key, token=token)

    async def find(self, agent: str) -> Contact | None:
        return self._known.get(agent)


class RegistryContacts:
    """What a registry knows: itself, the domain as it resolves it, then the ADP document that it holds and verified."""

    def __init__(self, client: Client, http: httpx2.AsyncClient, token: str | None = None) -> None:
        """`http` asks the registry itself, and documents of agents elsewhere; `token` is for the registry alone."""
        self._client = client
        self._http = http
        self._token = token

    async def close(self) -> None:
        await self._http.aclose()

    async def find(self, agent: str) -> Contact | None:
        """Where no DNS leads to an agent, a registry that answers for its domain does: its operator said so."""
        own = await self._itself(agent)
        if own is not None:
            return own
        resolution = await self._resolution(agent)
        found = await self._resolved(agent, resolution) or await self._registered(agent)
        is_led = resolution is not None and resolution.document is not None
        if found is not None and found.key is not None and (is_led or not _is_on_domain(found.url, domain_of(agent))):
            return found
        return await self._hosted(agent) or found

    async def itself(self) -> Contact:
        """The registry as an agent."""
        try:
            found = await self._http.get("/.well-known/agent.json")
        except httpx2.HTTPError as error:
            raise Unavailable(
                f"{self._http.base_url} cannot be reached ({error}).", path="server", hint="Is the service running?"
            ) from None
        document = parse_object(found.content)
        agent = str((document.get("identity") or {}).get("id"))
        return Contact(
            agent=agent, url=chat_url(document), key=document_key(agent, document, "domain"), token=self._token
        )

    async def _itself(self, agent: str) -> Contact | None:
        own = await self.itself()
        return own if own.agent == agent else None

    async def _resolution(self, agent: str) -> Resolution | None:
        try:
            return await self._client.resolve(agent) if has_dns_name(agent) else None
        except WaypostError:
            return None

    async def _resolved(self, agent: str, resolution: Resolution | None) -> Contact | None:
        key = None if resolution is None else find_dns_key(agent, resolution)
        if key is None or resolution is None or resolution.document is None:
            return None
        document = await self._fetched(resolution.document.url, resolution.document.sha256)
        return Contact(agent=agent, url=chat_url(document), key=key)

    async def _fetched(self, url: str, sha256: str) -> JsonObject:
        """The document that the registry judged, and no other one."""
        try:
            found = await self._http.get(url, headers={"Accept": "application/vnd.adp+json, application/json"})
        except httpx2.HTTPError as error:
            raise FetchFailed(f"{url} cannot be read ({error}).", path="url", hint="Try again later.") from None
        if found.status_code != 200 or hashlib.sha256(found.content).hexdigest() != sha256:
            raise FetchFailed(f"{url} has changed since it was judged.", path="url", hint="Resolve it again.")
        return parse_object(found.content)

    async def _hosted(self, agent: str) -> Contact | None:
        """An agent that the registry answers for, also while no DNS leads there."""
        own, domain = await self.itself(), domain_of(agent)
        if domain is None or not has_dns_name(agent):
            return None
        try:
            found = await self._http.get("/.well-known/agent.json", headers={"Host": domain})
        except httpx2.HTTPError:
            return None
        document = parse_object(found.content) if found.status_code == 200 else {}
        key, chat = document_key(agent, document, "registry"), chat_url(document)
        if key is None:
            return None
        if not _is_on_domain(chat, domain):
            return Contact(agent=agent, url=chat, key=key)
        return Contact(agent=agent, url=own.url, key=key, token=self._token)

    async def _registered(self, agent: str) -> Contact | None:
        try:
            found = await self._client.document(agent, "adp")
        except NotFound:
            return None
        document = found.body
        if found.trust != _VERIFIED:
            return Contact(agent=agent, url=chat_url(document))
        return Contact(agent=agent, url=chat_url(document), key=document_key(agent, document, "registry"))


class DomainContacts:
    """What the domain itself says, asked from here: its DNS, and the document that it leads to."""

    def __init__(self, resolver: DomainResolver, check: Callable[[str, int], None]) -> None:
        """`check` refuses addresses that a stranger's DNS may not lead to."""
        self._resolver = resolver
        self._check = check

    async def find(self, agent: str) -> Contact | None:
        if not has_dns_name(agent):
            return None
        found = await self._resolver.find(agent)
        told = found.resolution
        if told.outcome == "failed":
            raise _resolution_error(told)
        key = find_dns_key(agent, told)
        if key is None:
            return None
        documents = [each.parsed for each in found.documents if each.parsed is not None]
        url = next((url for document in documents if (url := chat_url(document)) is not None), None)
        return Contact(agent=agent, url=url, key=key, address=None if url is None else await self._address(url))

    async def _address(self, url: str) -> str | None:
        """The first address of the host that is allowed, asked of the same resolver."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 443
        for kind in _ADDRESSES:
            for record in (await self._resolver.dns.lookup(host, kind)).records:
                address = str(ipaddress.ip_address(record))
                self._check(address, port)
                return address
        return None


def _resolution_error(told: Resolution) -> WaypostError:
    """What a domain that cannot be followed says of its agent: nothing, or that it is not to be trusted."""
    rung = told.find_verdict("key-verified")
    if rung is not None and rung.state == "failed":
        return FingerprintMismatch(f"{told.domain}: {told.reason}.", path="to", hint="`waypost resolve` tells more.")
    return Unavailable(
        f"{told.domain} cannot be followed: {told.reason}.", path="to", hint="`waypost resolve` tells more."
    )


def has_dns_name(agent: str) -> bool:
    """Whether an agent has a name that the DNS may know."""
    return "." in agent and not agent.rpartition(".")[2].isdigit()


def chat_url(document: JsonObject) -> str | None:
    """`endpoints.chat` (ADP-36)."""
    endpoints: Any = document.get("endpoints")
    chat = endpoints.get("chat") if isinstance(endpoints, dict) else None
    return chat if isinstance(chat, str) else None


def _is_on_domain(url: str | None, domain: str | None) -> bool:
    """Whether an address is that of the domain itself, which a registry may answer for; no address is none elsewhere."""
    if url is None:
        return True
    parts = urlsplit(url)
    return parts.hostname == domain and parts.port in (None, 443)


def document_key(agent: str, document: JsonObject, by: KeySource) -> PeerIdentity | None:
    identity: Any = document.get("identity")
    stated = identity.get("publicKey") if isinstance(identity, dict) else None
    if not isinstance(stated, dict) or str(identity.get("id")).lower() != agent:
        return None
    try:
        key = parse_full_key(stated.get("full"))
    except InvalidKey:
        return None
    fingerprint = key.fingerprint() if key is not None else stated.get("fingerprint")
    if not isinstance(fingerprint, str) or not FINGERPRINT.match(fingerprint):
        return None
    return PeerIdentity(agent=agent, fingerprint=fingerprint, by=by, key=key, domain=domain_of(agent) or "")

"""Sources of contacts: where an agent can be reached for a chat, and by which key it is verified."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import httpx2
import msgspec

from waypost.domains.resolver import DomainResolver
from waypost.errors import FetchFailed, FingerprintMismatch, InvalidKey, NotFound, Unavailable, WaypostError
from waypost.messaging.peers import KeySource, PeerIdentity, find_dns_key
from waypost.model.json import JsonObject, parse_object
from waypost.model.names import domain_of
from waypost.model.resolution import Resolution
from waypost.trust.checks.adp import FINGERPRINT, parse_full_key

if TYPE_CHECKING:
    from waypost.client.requests import Document

_VERIFIED = "verified"
_WELL_KNOWN = "/.well-known/agent.json"
_ADDRESS_TYPES: Final[tuple[Literal["A"], Literal["AAAA"]]] = ("A", "AAAA")


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent can be reached, and its key."""

    agent: str
    url: str | None = None  # None: the agent can be verified, but not called
    address: str | None = None  # of the url's host, if it was resolved with another resolver than the system's
    key: PeerIdentity | None = None
    token: str | None = None


class Contacts(Protocol):
    """A source of contacts."""

    async def find(self, agent: str) -> Contact | None:
        """The contact of an agent; None if this source does not know it.

        Args:
            agent: The Agent URI.
        """
        ...


class RegistryLookup(Protocol):
    """The methods of `Client` that find an agent."""

    async def resolve(self, name: str) -> Resolution:
        """Resolve a domain or an Agent URI.

        Args:
            name: The domain or Agent URI.
        """
        ...

    async def document(self, id: str, as_: str = "profile") -> Document:  # noqa: A002
        """One agent in a dialect.

        Args:
            id: The id of the agent.
            as_: The dialect.
        """
        ...


class StaticContacts:
    """Contacts that the program itself adds."""

    def __init__(self) -> None:
        self._contacts: dict[str, Contact] = {}

    def add(
        self, agent: str, *, url: str | None, fingerprint: str | None, token: str | None = None, by: KeySource = "given"
    ) -> None:
        """Add or replace a contact.

        Args:
            agent: The Agent URI.
            url: Where it can be called.
            fingerprint: The fingerprint of its key.
            token: The token for the call.
            by: Where the key comes from.
        """
        if fingerprint is not None and not FINGERPRINT.match(fingerprint):
            raise InvalidKey(
                f"{fingerprint[:60]!r} is not a fingerprint.",
                path="fingerprint",
                hint="Write ed25519: and the 43 characters of base64url.",
            )
        key = None
        if fingerprint is not None:
            key = PeerIdentity(agent=agent, fingerprint=fingerprint, by=by, domain=domain_of(agent) or "")
        self._contacts[agent] = Contact(agent=agent, url=url, key=key, token=token)

    async def find(self, agent: str) -> Contact | None:
        """The contact that was added for an agent."""
        return self._contacts.get(agent)


class RegistryContacts:
    """Contacts of a registry: itself, domains that it resolves, and ADP documents that it verified, in this order."""

    def __init__(self, client: RegistryLookup, http: httpx2.AsyncClient, token: str | None = None) -> None:
        """Use a registry as a source.

        Args:
            client: A client of the registry.
            http: Reads documents of the registry and of agents elsewhere: it must have no token.
            token: The token for chats over the registry; it is sent to no other host.
        """
        self._client = client
        self._http = http
        self._token = token

    async def close(self) -> None:
        """Close the HTTP connections."""
        await self._http.aclose()

    async def find(self, agent: str) -> Contact | None:
        """The contact of an agent. A registry that hosts the agent's domain is used if the DNS does not lead to the agent."""
        registry = await self.registry_contact()
        if registry.agent == agent:
            return registry
        resolution = await self._resolve(agent)
        found = await self._resolved_contact(agent, resolution) or await self._registered_contact(agent)
        is_in_dns = resolution is not None and resolution.document is not None
        if (
            found is not None
            and found.key is not None
            and (is_in_dns or not _is_on_domain(found.url, domain_of(agent)))
        ):
            return found
        return await self._hosted_contact(agent) or found

    async def registry_contact(self) -> Contact:
        """The registry itself as an agent."""
        try:
            response = await self._http.get(_WELL_KNOWN)
        except httpx2.HTTPError as error:
            raise Unavailable(
                f"{self._http.base_url} cannot be reached ({error}).", path="server", hint="Is the service running?"
            ) from None
        document = parse_object(response.content)
        agent = str((document.get("identity") or {}).get("id"))
        return Contact(
            agent=agent, url=chat_url(document), key=document_key(agent, document, "domain"), token=self._token
        )

    async def _resolve(self, agent: str) -> Resolution | None:
        try:
            return await self._client.resolve(agent) if has_dns_name(agent) else None
        except WaypostError:
            return None

    async def _resolved_contact(self, agent: str, resolution: Resolution | None) -> Contact | None:
        key = None if resolution is None else find_dns_key(agent, resolution)
        if key is None or resolution is None or resolution.document is None:
            return None
        document = await self._fetch_verified(resolution.document.url, resolution.document.sha256)
        return Contact(agent=agent, url=chat_url(document), key=key)

    async def _fetch_verified(self, url: str, sha256: str) -> JsonObject:
        """The document that the registry verified; FetchFailed if it has changed since."""
        try:
            response = await self._http.get(url, headers={"Accept": "application/vnd.adp+json, application/json"})
        except httpx2.HTTPError as error:
            raise FetchFailed(f"{url} cannot be read ({error}).", path="url", hint="Try again later.") from None
        if response.status_code != 200 or hashlib.sha256(response.content).hexdigest() != sha256:
            raise FetchFailed(f"{url} has changed since it was verified.", path="url", hint="Resolve it again.")
        return parse_object(response.content)

    async def _hosted_contact(self, agent: str) -> Contact | None:
        """An agent whose domain the registry serves, even if the DNS does not point there."""
        registry, domain = await self.registry_contact(), domain_of(agent)
        if domain is None or not has_dns_name(agent):
            return None
        try:
            response = await self._http.get(_WELL_KNOWN, headers={"Host": domain})
        except httpx2.HTTPError:
            return None
        document = parse_object(response.content) if response.status_code == 200 else {}
        key, chat = document_key(agent, document, "registry"), chat_url(document)
        if key is None:
            return None
        if not _is_on_domain(chat, domain):
            return Contact(agent=agent, url=chat, key=key)
        return Contact(agent=agent, url=registry.url, key=key, token=self._token)

    async def _registered_contact(self, agent: str) -> Contact | None:
        try:
            found = await self._client.document(agent, "adp")
        except NotFound:
            return None
        key = document_key(agent, found.body, "registry") if found.trust == _VERIFIED else None
        return Contact(agent=agent, url=chat_url(found.body), key=key)


class DomainContacts:
    """Contacts of domains, resolved by this program: DNS records and the documents that they name."""

    def __init__(self, resolver: DomainResolver, check: Callable[[str, int], None]) -> None:
        """Use the DNS as a source.

        Args:
            resolver: Resolves domains.
            check: Raises for an address and port to which the DNS of others may not lead.
        """
        self._resolver = resolver
        self._check = check

    async def find(self, agent: str) -> Contact | None:
        """The contact that the domain of an agent states; None if the domain has no key for it."""
        if not has_dns_name(agent):
            return None
        found = await self._resolver.find(agent)
        if found.resolution.outcome == "failed":
            raise _resolution_error(found.resolution)
        key = find_dns_key(agent, found.resolution)
        if key is None:
            return None
        documents = [each.parsed for each in found.documents if each.parsed is not None]
        url = next((url for document in documents if (url := chat_url(document)) is not None), None)
        return Contact(agent=agent, url=url, key=key, address=None if url is None else await self._address(url))

    async def _address(self, url: str) -> str | None:
        """The first address of the host, from the same resolver. Raises if it is not allowed."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 443
        for record_type in _ADDRESS_TYPES:
            for record in (await self._resolver.dns.lookup(host, record_type)).records:
                address = str(ipaddress.ip_address(record))
                self._check(address, port)
                return address
        return None


def _resolution_error(resolution: Resolution) -> WaypostError:
    """FingerprintMismatch if the key of a domain is wrong: the agent must not be trusted. Otherwise Unavailable."""
    verdict = resolution.find_verdict("key-verified")
    hint = "`waypost resolve` shows the steps."
    if verdict is not None and verdict.state == "failed":
        return FingerprintMismatch(f"{resolution.domain}: {resolution.reason}.", path="to", hint=hint)
    return Unavailable(f"{resolution.domain} cannot be resolved: {resolution.reason}.", path="to", hint=hint)


def has_dns_name(agent: str) -> bool:
    """True if the name of an agent can be in the DNS.

    Args:
        agent: The Agent URI.
    """
    return "." in agent and not agent.rpartition(".")[2].isdigit()


def chat_url(document: JsonObject) -> str | None:
    """`endpoints.chat` of an ADP document (ADP-36).

    Args:
        document: The document.
    """
    endpoints: Any = document.get("endpoints")
    chat = endpoints.get("chat") if isinstance(endpoints, dict) else None
    return chat if isinstance(chat, str) else None


def _is_on_domain(url: str | None, domain: str | None) -> bool:
    """True if a URL is on the domain itself, which a registry may serve, or if there is no URL."""
    if url is None:
        return True
    parts = urlsplit(url)
    return parts.hostname == domain and parts.port in (None, 443)


def document_key(agent: str, document: JsonObject, by: KeySource) -> PeerIdentity | None:
    """The key that an ADP document states for an agent; None if it is of another agent or has no valid key.

    Args:
        agent: The Agent URI.
        document: The document.
        by: Where the document comes from.
    """
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

"""The sender of a task or swarm request (the subject of a token, or an agent that signs it, P-5) and its target agent.

The target is the agent in `?agent=`, else the agent hosted under `Host`, else the service itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import msgspec

from waypost.errors import (
    AddressDenied,
    FingerprintMismatch,
    Forbidden,
    InvalidDocument,
    InvalidParameter,
    NotFound,
    NotOwner,
    UnknownPeer,
)
from waypost.messaging.peers import PeerIdentity, find_dns_key
from waypost.messaging.request_signatures import (
    AGENT_URI_PREFIX,
    RequestVerifier,
    parse_agent_uri,
    parse_signature_headers,
)
from waypost.messaging.swarms import NameVerdict
from waypost.messaging.tasks import TaskRoute
from waypost.model.json import JsonObject
from waypost.model.names import domain_of
from waypost.model.principal import PUBLIC, Principal, may_change, may_see, no_such_agent
from waypost.model.registration import CatalogEntry
from waypost.model.resolution import Resolution
from waypost.registry.ownership import is_inside, is_verified_for_domain, speaks_for_domain
from waypost.registry.ports import OutboundSender as Outgoing
from waypost.registry.registry import Registry
from waypost.server.hosted_agents.keys import HostedKeys
from waypost.server.hosted_agents.service_agent import ServiceAgent
from waypost.server.http.asgi import Request
from waypost.server.http.routing import RequestContext
from waypost.server.renderer import Renderer

if TYPE_CHECKING:
    from waypost.domains.resolver import DomainResolution


# What the DNS of an agent's domain says: the key of the agent, and the endpoint that takes its tasks. For a domain that is
# hosted here, the key is the one that signs its document here.

_SPECIAL_USE_NAMES = ("invalid", "localhost", "test", "example", "local")  # not in the public DNS (RFC 6761)


class DomainKeyResolver(Protocol):
    async def resolve(self, name: str) -> Resolution: ...


class DomainKeys:
    def __init__(self, resolver: DomainKeyResolver, *, everywhere: bool = False) -> None:
        """`everywhere`: also look up special-use names, which a private resolver may know."""
        self._resolver = resolver
        self._everywhere = everywhere

    async def key_of(self, agent: str) -> PeerIdentity | None:
        domain = domain_of(agent) or ""
        last = domain.rpartition(".")[2]
        if (
            "." not in domain
            or last.isdigit()
            or ":" in domain
            or (last in _SPECIAL_USE_NAMES and not self._everywhere)
        ):
            return None
        try:
            found = await self._resolver.resolve(agent)
        except InvalidParameter:
            return None
        if found.dnssec == "bogus":
            raise UnknownPeer(
                f"The DNS answer for {domain} is bogus: {found.reason or 'its signatures are invalid'}.",
                path="$.from",
                hint="Repair the signatures of the zone.",
            )
        rung = found.find_verdict("key-verified")
        if rung is not None and rung.state == "failed":
            raise FingerprintMismatch(
                f"The key in the document of {domain} differs from the one in its DNS.",
                path="$.from",
                hint="Publish the same key in both.",
            )
        return find_dns_key(agent, found)


class HostedPeerKeys:
    """Keys of agents hosted here that the DNS does not lead to yet."""

    def __init__(self, registry: Registry, keys: HostedKeys) -> None:
        self._registry = registry
        self._keys = keys

    async def key_of(self, agent: str) -> PeerIdentity | None:
        domain = domain_of(agent) or ""
        key = self._keys.key_of(domain) if domain and self._registry.hosted(domain) is not None else None
        if key is None:
            return None
        public = key.public
        return PeerIdentity(
            agent=agent, fingerprint=public.fingerprint() or "", by="registry", key=public, domain=domain
        )


class DomainTaskResolver(Protocol):
    async def find(self, name: str) -> DomainResolution: ...


class DomainTaskEndpoints:
    def __init__(self, resolver: DomainTaskResolver) -> None:
        self._resolver = resolver

    async def tasks_url(self, agent: str) -> str:
        """Find the task endpoint, or raise NotFound without a reason: a reason would help to map a network."""
        try:
            found = await self._resolver.find(agent)
        except InvalidParameter:
            raise _no_task_endpoint(agent) from None
        resolution = found.resolution
        if not resolution.is_resolved or any(verdict.state == "failed" for verdict in resolution.verdicts):
            raise _no_task_endpoint(agent)
        for descriptor in found.documents:
            url = _find_tasks_url(descriptor.parsed or {})
            if url is not None:
                return url
        raise _no_task_endpoint(agent)


def find_public_domain(agent: str) -> str | None:
    """The domain in an Agent URI, in any spelling, if the public DNS could have it."""
    domain = domain_of(agent) if agent[:6].lower() == "agent:" else None
    return domain if domain is not None and "." in domain and not domain.rpartition(".")[2].isdigit() else None


def _find_tasks_url(document: JsonObject) -> str | None:
    endpoints: Any = document.get("endpoints")
    url = endpoints.get("tasks") if isinstance(endpoints, dict) else None
    return url if isinstance(url, str) and url.startswith("https://") else None


def _no_task_endpoint(agent: str) -> NotFound:
    return NotFound(f"No task endpoint is known for {agent[:80]!r}.", path="agent", hint="Check the name of the agent.")


_FALLBACK_ID_HEADERS = (b"idempotency-key", b"x-request-id")  # identify a signed request without ADP-Id


class Requester(msgspec.Struct, frozen=True, kw_only=True):
    """`agent` is set if the request was signed; the principal then has the rights of an anonymous caller."""

    principal: Principal
    agent: str | None = None

    @property
    def name(self) -> str:
        return self.agent or f"subject {self.principal.subject}"

    def sees(self, entry: CatalogEntry) -> bool:
        if self.agent is None:
            return may_see(self.principal, entry.scopes)
        return entry.visibility == PUBLIC or f"private:{self.agent}" in entry.scopes


_HTTPS_PORT = 443


class Addressee(msgspec.Struct, frozen=True, kw_only=True):
    """The target agent of a request, and where its tasks are processed."""

    agent: str  # Agent URI, or the id of an agent without a domain
    where: TaskRoute
    entry: CatalogEntry | None = None  # None: the service itself
    url: str | None = None  # the task endpoint
    reason: str = ""  # why it is this agent or this way


class Requesters:
    def __init__(
        self,
        registry: Registry,
        renderer: Renderer,
        service: ServiceAgent,
        signatures: RequestVerifier,
        holds_key: Callable[[str], bool],
    ) -> None:
        """`holds_key`: whether this service holds the key of a domain."""
        self._holds_key = holds_key
        self._registry = registry
        self._renderer = renderer
        self._service = service
        self._signatures = signatures

    @property
    def own(self) -> str:
        """The Agent URI of the service."""
        return self._service.registration.id

    async def sender(self, call: RequestContext, body: bytes) -> Requester:
        """Identify the sender. Raises BadSignature or Replayed if a signature is invalid."""
        request = call.request
        signed = (
            parse_signature_headers(request.header, _FALLBACK_ID_HEADERS)
            if request.header(b"authorization") is None
            else None
        )
        if signed is None:
            return Requester(principal=call.principal)
        to = self._named(request)
        raw_path: bytes = request.scope.get("raw_path") or request.path.encode()
        await self._signatures.check_request(signed, to, request.method, raw_path.decode("latin-1"), body)
        return Requester(principal=call.principal, agent=signed.agent)

    def _named(self, request: Request) -> str:
        """The receiver that the signature covers: the name as the sender wrote it, so that a signature is judged equally for
        visible, hidden and unknown agents."""
        agent_id = request.param("agent")
        if agent_id is not None:
            return agent_id
        entry = self._entry(request)
        return self.own if entry is None else agent_uri(entry)

    def _entry(self, request: Request) -> CatalogEntry | None:
        agent_id = request.param("agent")
        if agent_id is None:
            return self._hosted(request)
        if agent_id == self.own:
            return None
        found = find_agent(self._registry, agent_id)
        if found is None:
            raise no_such_agent(agent_id, "agent")
        return found

    async def addressee(self, request: Request, sender: Requester) -> Addressee:
        """The agent that is to perform a task, if the sender may see it. Tasks for `agent:{domain}` go to a verified record, else
        by the DNS, which is queried later; hidden, unknown and self-asserted agents are handled alike."""
        wanted = request.param("agent")
        domain = find_public_domain(wanted) if wanted is not None else None
        if wanted is not None and domain is not None and wanted != self.own:
            entry = await self._find_proven(domain, sender)
            if entry is not None:
                return await self._addressed(entry, sender)
            vouched = await self._find_vouched(domain, sender)
            if vouched is not None:
                return vouched
            if sender.agent is not None:
                raise no_such_agent(wanted, "agent")
            reason = f"{domain} has no verified agent here that you may see: its DNS decides"
            agent = parse_agent_uri(f"{AGENT_URI_PREFIX}{domain}", "agent")
            return Addressee(agent=agent, where="sent", url="", reason=reason)
        found = self._seen(request, sender)
        if found is None:
            return Addressee(agent=self.own, where="own", reason="this service performs the task itself")
        return await self._addressed(found, sender)

    async def _find_proven(self, domain: str, sender: Requester) -> CatalogEntry | None:
        """The agent that may act for a domain: it is hosted here under the domain, or its owner has proven its id."""
        hosted = self._registry.hosted(domain)
        entry = hosted or self._registry.entries.find_named(f"{AGENT_URI_PREFIX}{domain}")
        if entry is None or not sender.sees(entry):
            return None
        if hosted is not None:
            return entry
        found = await self._registry.registrations((entry.id,))
        return entry if found and speaks_for_domain(found[0], domain) else None

    async def _find_vouched(self, domain: str, sender: Requester) -> Addressee | None:
        """A verified record whose owner has proven nothing: tasks go to the endpoint in the domain, never to the owner."""
        entry = self._registry.entries.find_named(f"{AGENT_URI_PREFIX}{domain}")
        if entry is None or not sender.sees(entry):
            return None
        found = await self._registry.registrations((entry.id,))
        if not found or not is_verified_for_domain(found[0], domain):
            return None
        url = await self._tasks_url(entry)
        return None if url is None or not is_inside(url, domain) else self._forwarded(entry, url, sender)

    def host(self, request: Request, sender: Requester) -> str:
        """The agent that owns a swarm, if the sender may see it."""
        entry = self._seen(request, sender)
        return self.own if entry is None else agent_uri(entry)

    def _seen(self, request: Request, sender: Requester) -> CatalogEntry | None:
        entry = self._entry(request)
        if entry is not None and not sender.sees(entry):
            raise no_such_agent(request.param("agent") or entry.domain or entry.id, "agent")
        return entry

    async def _addressed(self, entry: CatalogEntry, sender: Requester) -> Addressee:
        url = await self._tasks_url(entry)
        if url is None:
            reason = "the agent is hosted here" if entry.domain else "the agent is registered here"
            return Addressee(agent=agent_uri(entry), where="kept", entry=entry, reason=reason)
        return self._forwarded(entry, url, sender)

    def _forwarded(self, entry: CatalogEntry, url: str, sender: Requester) -> Addressee:
        if sender.agent is not None:
            raise Forbidden(
                "This agent takes tasks elsewhere. This service forwards tasks of its own subjects only.",
                path="agent",
                hint=f"Send the task to {url}.",
            )
        reason = "the record of the agent here names its task endpoint"
        return Addressee(agent=agent_uri(entry), where="sent", entry=entry, url=url, reason=reason)

    async def _tasks_url(self, entry: CatalogEntry) -> str | None:
        """The task endpoint that the agent's ADP document names, unless it is this service."""
        found = await self._registry.registrations((entry.id,))
        try:
            document = self._renderer.document(found[0], "adp", self._registry.clock.now()) if found else {}
        except NotFound:
            return None
        url = document.get("endpoints", {}).get("tasks")
        if not isinstance(url, str) or not url.startswith("https://"):
            return None
        return None if self._is_here(url, entry.domain) else url

    def _is_here(self, url: str, domain: str | None) -> bool:
        """Compare host and port: another service may listen on the same host or domain."""
        own, there = urlsplit(self._renderer.base_url), urlsplit(url)
        ports = {_HTTPS_PORT, own.port or _HTTPS_PORT}
        return there.hostname in (domain, self._renderer.host) and (there.port or _HTTPS_PORT) in ports

    async def judge_name(self, sender: Requester, agent: str) -> NameVerdict:
        """Whether the sender has proven that it acts for an agent. Hidden and unknown agents are handled alike. Raises Forbidden
        for an agent of another subject, and for a signer that names another agent."""
        if sender.agent is not None:
            if sender.agent != agent:
                raise _foreign_name_error()
            return "verified"
        entry = find_agent(self._registry, agent)
        if entry is None or not sender.sees(entry):
            return "unverified"
        if not may_change(sender.principal, entry.owner):
            raise _foreign_name_error()
        domain = domain_of(agent) or ""
        return "verified" if await self._find_proven(domain, sender) is not None else "registered"

    def owner_of(self, agent: str) -> str | None:
        """The owner of an agent; admin for the service itself."""
        if agent == self.own:
            return "admin"
        entry = find_agent(self._registry, agent)
        return None if entry is None else entry.owner

    def owned(self, principal: Principal, key: str) -> CatalogEntry:
        return owned_agent(self._registry, principal, key)

    def sent_as(self, request: Request, sender: Requester) -> str | None:
        """The agent on whose behalf a task is sent (`?as=`): one of the caller's agents, hosted here with its key."""
        agent_id = request.param("as")
        if agent_id is None:
            return None
        if sender.agent is not None:
            raise Forbidden("A signed request is sent on behalf of its signer.", path="as", hint="Leave out `as`.")
        entry = owned_agent(self._registry, sender.principal, agent_id, "as")
        if entry.domain is None or not self._holds_key(entry.domain):
            raise InvalidParameter(
                f"{agent_id[:80]!r} is not hosted here with a key.",
                path="as",
                hint="Host it with `waypost host DOMAIN AGENT`, or sign with its key (--as AGENT --key FILE).",
            )
        return agent_uri(entry)

    def domain(self, request: Request) -> str:
        """The domain of the hosted agent that `Host` selects, else the service's host."""
        entry = self._hosted(request)
        return entry.domain or self._renderer.host if entry is not None else self._renderer.host

    def worked_for(self, request: Request, principal: Principal) -> str | None:
        """The caller's agent whose tasks are requested: `?agent=`, or the agent that `Host` selects if the caller owns it."""
        agent_id = request.param("agent")
        if agent_id is not None:
            return agent_uri(self.owned(principal, agent_id))
        entry = self._hosted(request)
        return agent_uri(entry) if entry is not None and may_change(principal, entry.owner) else None

    def _hosted(self, request: Request) -> CatalogEntry | None:
        return self._registry.hosted(request.host_name)


def _foreign_name_error() -> Forbidden:
    return Forbidden("You may not act for this agent.", path="$.agent", hint="Join with one of your agents.")


def check_callback(outgoing: Outgoing, sender: Requester, url: object) -> None:
    """Require https and a public address (P-5). A caller that only signs may name its own domain only: otherwise the service
    could be used to amplify requests against others (THREATS S8)."""
    if not isinstance(url, str):
        raise InvalidDocument("The callback must be a URL.", path="$.callback", hint="Write https://….")
    try:
        outgoing.check(url, "webhook")
    except (InvalidParameter, AddressDenied) as error:
        raise type(error)(error.message, path="$.callback", hint=error.hint, details=error.details) from None
    if sender.agent is None:
        return
    domain, host = sender.agent.removeprefix(AGENT_URI_PREFIX), urlsplit(url).hostname or ""
    if host != domain and not host.endswith(f".{domain}"):
        raise Forbidden(
            "The callback of a signed request must be in the domain of its signer.",
            path="$.callback",
            hint=f"Use https://{domain}/….",
        )


def find_agent(registry: Registry, key: str) -> CatalogEntry | None:
    """Find an agent by hosted domain, id or alias."""
    hosted = registry.hosted(key.removeprefix(AGENT_URI_PREFIX)) if key.startswith(AGENT_URI_PREFIX) else None
    return hosted or registry.entries.find_named(key)


def owned_agent(registry: Registry, principal: Principal, key: str, path: str = "$.agent") -> CatalogEntry:
    """Return one of the caller's agents. A hidden agent is reported as unknown, a foreign one as not owned."""
    entry = find_agent(registry, key)
    if entry is None or not may_see(principal, entry.scopes):
        raise no_such_agent(key, path)
    if not may_change(principal, entry.owner):
        raise NotOwner("This agent belongs to another subject.", path=path, hint="Only its owner may do this.")
    return entry


def agent_uri(entry: CatalogEntry) -> str:
    return f"{AGENT_URI_PREFIX}{entry.domain}" if entry.domain else entry.id

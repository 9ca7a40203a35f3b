"""Following the change log over connections that come and go."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx2
import msgspec

from waypost import limits
from waypost.client.agent import Agent
from waypost.client.aio.connection import Connection
from waypost.client.aio.messaging import MessagingMethods
from waypost.client.discover_forms import DiscoverCache, form_request, registry_origin
from waypost.client.http import EventStreamDecoder, Retry, ServerEvent
from waypost.client.pause import async_pause
from waypost.client.requests import (
    AGENTS,
    DOMAINS,
    ApiRequest,
    Registrable,
    WriteOptions,
    agent_path,
    batch_request,
    batches,
    discover_request,
    document_bytes,
    domain_path,
    fetch_request,
    json_request,
    parse_batch_line,
    parse_change,
    parse_document,
    parse_domain_claim,
    parse_fetch_result,
    parse_json_body,
    parse_json_object,
    parse_page,
    parse_receipt,
    query_params,
    quote_etag,
    register_request,
    verify_request,
)
from waypost.client.results import (
    AgentHealth,
    AgentZone,
    AllowEntry,
    AuditTrailPage,
    Change,
    DiffResult,
    Document,
    DomainClaim,
    FacetOverview,
    Failure,
    FetchResult,
    HistoryResult,
    LogCheckpoint,
    LogProof,
    MintedToken,
    Page,
    PendingChangeView,
    Receipt,
    RevokedItem,
    SearchResult,
    Stats,
    TrustedKey,
    TrustStorePage,
    VerificationResult,
    parse_allow_rules,
    parse_audit_page,
    parse_diff,
    parse_facets,
    parse_history,
    parse_log_checkpoint,
    parse_log_proof,
    parse_pending_change,
    parse_revocations,
    parse_search_result,
    parse_verification,
    parse_zone,
)
from waypost.errors import InvalidRequest, RateLimited, Unavailable, WaypostError
from waypost.model.events import EVENT_TYPES
from waypost.model.json import dump_json
from waypost.model.query import Detail
from waypost.model.resolution import Depth, OrganisationIndex, Resolution
from waypost.protocols.rtfs.discover_form import (
    DiscoverForm,
    DiscoverValue,
    failed_discovery,
    parse_discover,
    parse_response,
)
from waypost.settings import load_connection_settings

WATCH_READ_SECONDS = 2.5 * limits.WATCH_BOOKMARK_SECONDS  # a living service is never silent for so long


async def stream_changes(
    connection: Connection, params: tuple[tuple[str, str], ...], cursor: str | None
) -> AsyncIterator[Change]:
    """Changes after `cursor`, each once, in order. A stream that was open once is taken up again where it broke."""
    attempt = 0
    opened = False
    while True:
        failure: WaypostError = Unavailable("The service ended the stream.", hint="Watch again.")
        try:
            async for event in _stream_events(connection, params, cursor):
                opened = True
                cursor = event.id or cursor
                if event.event in EVENT_TYPES:
                    attempt = 0
                    yield parse_change(event)
        except (Unavailable, RateLimited) as error:
            failure = error
        attempt += 1
        if not opened or cursor is None or attempt > limits.CLIENT_WATCH_ATTEMPTS:
            raise failure
        await async_pause((failure.retry_after or 0) + connection.retry.backoff(attempt, random.random()))


async def _stream_events(
    connection: Connection, params: tuple[tuple[str, str], ...], cursor: str | None
) -> AsyncIterator[ServerEvent]:
    """What one connection brings, after an `open` that tells that it stands and from where."""
    start = () if cursor is None else (("from", cursor),)
    headers = {"Accept": "text/event-stream"} | ({} if cursor is None else {"Last-Event-ID": cursor})
    call = ApiRequest(
        method="GET", path="/api/v1/watch", params=(*params, *start), headers=headers, read_seconds=WATCH_READ_SECONDS
    )
    events = EventStreamDecoder()
    async with connection.stream(call) as (headers_given, chunks):
        yield ServerEvent("open", "", headers_given.get("Waypost-Cursor") if cursor is None else None)
        async for chunk in chunks:
            for event in events.feed(chunk):
                yield event


# ---- The half of the client for operators of trust: who may announce, which keys are bound, what was revoked.

ALLOW_PATH = "/api/v1/allow"

KEYS_PATH = "/api/v1/keys"


class TrustMethods:
    _connection: Connection

    async def allow_list(self) -> tuple[AllowEntry, ...]:
        """The rules of the allow-list. Only admin may."""
        return parse_allow_rules(
            parse_json_object(await self._connection.send(ApiRequest(method="GET", path=ALLOW_PATH)))
        )

    async def allow_add(self, rule: str) -> AllowEntry:
        """Let agents announce: an agent_id, `key:sha256:<hex>`, `san:<suffix>` or `*`. Only admin may."""
        return msgspec.convert(
            parse_json_object(await self._connection.send(json_request(ALLOW_PATH, {"rule": rule}))), AllowEntry
        )

    async def allow_remove(self, rule: str) -> None:
        """Remove a rule. Only admin may."""
        path = f"{ALLOW_PATH}/{quote(rule, safe='')}"
        await self._connection.send(ApiRequest(method="DELETE", path=path, repeatable=False))

    async def keys_list(
        self, agent_id: str | None = None, *, limit: int | None = None, cursor: str | None = None
    ) -> TrustStorePage:
        """A page of the trust store: the keys of all agents, then what was revoked; or both of one agent. Only admin may."""
        call = ApiRequest(
            method="GET", path=KEYS_PATH, params=query_params(agent_id=agent_id, limit=limit, cursor=cursor)
        )
        return msgspec.convert(parse_json_object(await self._connection.send(call)), TrustStorePage)

    async def keys_trust(self, agent_id: str, public_key: str) -> TrustedKey:
        """Bind a key (PEM) to an agent; the keys before it are retired. Only admin may."""
        call = json_request(KEYS_PATH, {"agent_id": agent_id, "public_key": public_key})
        return msgspec.convert(parse_json_object(await self._connection.send(call)), TrustedKey)

    async def keys_revoke(
        self,
        *,
        key_id: str | None = None,
        agent_id: str | None = None,
        serial: str | None = None,
        token_id: str | None = None,
        reason: str | None = None,
    ) -> RevokedItem:
        """Revoke a key, an agent, a certificate or a token, at once and for good. Only admin may."""
        asked = {"key_id": key_id, "agent_id": agent_id, "serial": serial, "token_id": token_id, "reason": reason}
        named = {name: value for name, value in asked.items() if value is not None}
        return msgspec.convert(
            parse_json_object(await self._connection.send(json_request(f"{KEYS_PATH}:revoke", named))), RevokedItem
        )

    async def revocations(self) -> tuple[RevokedItem, ...]:
        """Keys and agents that were revoked."""
        return parse_revocations(
            parse_json_object(await self._connection.send(ApiRequest(method="GET", path="/agents/revocations")))
        )


# ---- The part of the client for whoever writes zones: the DNS records that lead to an agent.


class ZoneMethods:
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
        params = query_params(
            format=format, target=target, port=port, ttl=ttl, org=org, address=tuple(addresses), spki=tuple(spki)
        )
        call = ApiRequest(method="GET", path=agent_path(id, ":zone"), params=params)
        return parse_zone(parse_json_object(await self._connection.send(call)))


# ---- `Client`: the registry as methods. Each is a call, an answer, a typed value; the rules live in the service.


class Client(TrustMethods, MessagingMethods, ZoneMethods):
    """A Waypost service. Without arguments: the one that the command would use, with the same token."""

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        timeout: float | None = None,
        *,
        data: Path | None = None,
        config: Path | None = None,
        ca: Path | None = None,
        cert: Path | None = None,
        cert_key: Path | None = None,
        retry: Retry | None = None,
        signer: httpx2.Auth | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """With a `signer` (`waypost.client.agent_signer`) an agent signs its requests instead of showing a token."""
        flags = {"server": base_url, "token": token, "timeout": timeout, "data": data}
        flags |= {"ca": ca, "cert": cert, "cert_key": cert_key}
        address = load_connection_settings(flags, config=config)
        self.base_url = address.base_url
        self._address = address
        self._connection = Connection(address, retry or Retry(), transport, signer)
        self._registries: dict[str, Connection] = {}  # of the forms that name one, by origin
        self._discovered = DiscoverCache()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Leaving the `with` block does it."""
        for connection in (self._connection, *self._registries.values()):
            await connection.aclose()

    # --- Writing -----------------------------------------------------------------------------------------------------

    async def register(
        self,
        document: Registrable,
        *,
        dialect: str | None = None,
        visibility: str | None = None,
        ttl_seconds: int | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
        base: str | None = None,
        fetched_from: str | None = None,
    ) -> Receipt:
        """Register a document of any dialect: a mapping, bytes, its text, or the path of a file.

        `base` is the origin of its relative references, `fetched_from` the address where it is published.

        An idempotency key is made when none is given, so that a lost answer may be asked for again.
        """
        writing = WriteOptions(
            dialect=dialect,
            visibility=visibility,
            ttl_seconds=ttl_seconds,
            if_match=if_match,
            idempotency_key=idempotency_key or uuid.uuid4().hex,
            base=base,
            fetched_from=fetched_from,
        )
        return parse_receipt(
            parse_json_object(await self._connection.send(register_request(document_bytes(document), writing)))
        )

    async def register_many(
        self, documents: Iterable[Registrable], *, visibility: str | None = None, ttl_seconds: int | None = None
    ) -> AsyncIterator[Receipt | Failure]:
        """Register JSON documents in batches; one result for each, in order. One that is refused stops no other."""
        writing = WriteOptions(visibility=visibility, ttl_seconds=ttl_seconds)
        for lines in batches(documents):
            async for line in self._connection.lines(batch_request(lines, writing)):
                yield parse_batch_line(line)

    async def fetch(
        self,
        url: str,
        save: bool = False,
        *,
        dialect: str | None = None,
        visibility: str | None = None,
        ttl_seconds: int | None = None,
        digest: str | None = None,
        organisation: bool = False,
    ) -> FetchResult:
        """Let the service fetch the documents at an address, and register them with `save`.

        An origin stands for its well-known documents. A domain or an agent URI is resolved, and comes with how far it is
        proven; with `organisation` so is every agent that the domain lists. `digest` of what was seen before keeps anything
        else from being saved.
        """
        wanted = {"url": url, "save": save, "dialect": dialect, "digest": digest, "organisation": organisation or None}
        writing = WriteOptions(visibility=visibility, ttl_seconds=ttl_seconds)
        return parse_fetch_result(parse_json_object(await self._connection.send(fetch_request(wanted, writing))))

    async def renew(self, id: str, ttl_seconds: int | None = None) -> Receipt:  # noqa: A002
        """Prolong the lease of an agent."""
        content = dump_json({} if ttl_seconds is None else {"ttl_seconds": ttl_seconds})
        headers = {"Content-Type": "application/json"}
        call = ApiRequest(method="POST", path=agent_path(id, ":renew"), headers=headers, content=content)
        return parse_receipt(parse_json_object(await self._connection.send(call)))

    async def share(self, id: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Receipt:  # noqa: A002
        """Let subjects see a private agent, or no longer. The receipt's `invitees` are all who are let in."""
        call = json_request(agent_path(id, ":share"), {"add": list(add), "remove": list(remove)})
        return parse_receipt(parse_json_object(await self._connection.send(call)))

    async def host(self, id: str, domain: str | None) -> Receipt:  # noqa: A002
        """Answer for an agent under a domain, by `Host`; None ends it. Only admin may."""
        headers = {"Content-Type": "application/json"}
        content = dump_json({"domain": domain})
        call = ApiRequest(method="POST", path=agent_path(id, ":host"), headers=headers, content=content)
        return parse_receipt(parse_json_object(await self._connection.send(call)))

    async def withdraw(self, id: str, if_match: str | None = None) -> None:  # noqa: A002
        """Remove an agent. Only its owner (or admin) may."""
        etag = quote_etag(if_match)
        headers = {} if etag is None else {"If-Match": etag}
        await self._connection.send(ApiRequest(method="DELETE", path=agent_path(id), headers=headers, repeatable=False))

    async def verify(self, id: str) -> VerificationResult:  # noqa: A002
        """Check the documents of an agent now. `level` is verified, self_asserted or failed; invoke nothing that failed."""
        return parse_verification(
            parse_json_object(await self._connection.send(ApiRequest(method="GET", path=agent_path(id, ":verify"))))
        )

    async def verify_document(self, document: Registrable, dialect: str | None = None) -> VerificationResult:
        """Check a document with the keys that the service trusts. Nothing is registered."""
        return parse_verification(
            parse_json_object(await self._connection.send(verify_request(document_bytes(document), dialect)))
        )

    async def resolve(self, name: str, until: Depth = "key", *, fresh: bool = False) -> Resolution:
        """From a domain, an agent URI or the https address of a document to an agent, asked by the service.

        `level` is how far it is proven, `verdicts` says so rung by rung, `steps` tells what was asked. `until` stops at the
        DNS or at the document; `fresh` asks anew, whatever the service remembers.
        """
        params = query_params(name=name, until=until, fresh="true" if fresh else None)
        call = ApiRequest(method="GET", path="/api/v1/resolve", params=params)
        return msgspec.convert(parse_json_object(await self._connection.send(call)), Resolution)

    async def organisation(self, name: str) -> OrganisationIndex:
        """The agents that an organisation lists: its index or catalogue, the aliases at `_agents`, or its TXT list."""
        call = ApiRequest(method="GET", path="/api/v1/organisation", params=query_params(name=name))
        return msgspec.convert(parse_json_object(await self._connection.send(call)), OrganisationIndex)

    async def held(self, id: str) -> PendingChangeView:  # noqa: A002
        """The change of a verified agent that waits for its owner. NotFound when none does."""
        return parse_pending_change(
            parse_json_object(await self._connection.send(ApiRequest(method="GET", path=agent_path(id, ":held"))))
        )

    async def confirm(self, id: str, etag: str) -> Receipt:  # noqa: A002
        """Let the change pass that waits under this etag. Only its owner (or admin) may."""
        return parse_receipt(
            parse_json_object(await self._connection.send(json_request(agent_path(id, ":confirm"), {"etag": etag})))
        )

    async def reject(self, id: str, etag: str) -> Receipt:  # noqa: A002
        """Forget the change that waits under this etag. Only its owner (or admin) may."""
        return parse_receipt(
            parse_json_object(await self._connection.send(json_request(agent_path(id, ":reject"), {"etag": etag})))
        )

    # --- Reading -----------------------------------------------------------------------------------------------------

    async def get(self, id: str) -> Agent:  # noqa: A002
        """The agent with this id, or with this alias."""
        return Agent.from_document((await self.document(id)).body)

    async def document(self, id: str, as_: str = "profile", form: str | None = None) -> Document:  # noqa: A002
        """The agent in a dialect: profile, af, rtfs, announce, adp, a2a, ard, mcp or oasf.

        With `as_="rtfs"` and `form="profile"`, `content` is its `(agent-profile …)` text.
        """
        params = query_params(form=form, **{"as": as_})
        response = await self._connection.send(ApiRequest(method="GET", path=agent_path(id), params=params))
        return parse_document(response, as_)

    async def history(self, id: str, limit: int | None = None) -> HistoryResult:  # noqa: A002
        """The versions of an agent that are kept and that the caller could see, the newest first."""
        call = ApiRequest(method="GET", path=agent_path(id, ":history"), params=query_params(limit=limit))
        return parse_history(parse_json_object(await self._connection.send(call)))

    async def agent_health(self, id: str) -> AgentHealth:  # noqa: A002
        """How the endpoint of an agent answers, where the service checks it; why it fails is told to its owner."""
        call = ApiRequest(method="GET", path=agent_path(id, ":health"))
        return msgspec.convert(parse_json_object(await self._connection.send(call)), AgentHealth)

    async def diff(self, id: str, from_: str | None = None, to: str | None = None) -> DiffResult:  # noqa: A002
        """How two versions differ, by their etags; without them the current one and the one before it."""
        call = ApiRequest(method="GET", path=agent_path(id, ":diff"), params=query_params(to=to, **{"from": from_}))
        return parse_diff(parse_json_object(await self._connection.send(call)))

    async def page(
        self,
        *,
        tags: Iterable[str] = (),
        protocol: str | None = None,
        status: str | None = None,
        owner: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        as_: str | None = None,
    ) -> Page:
        """One page of the agents that the caller may see. All `tags` must be there."""
        params = query_params(
            tag=tuple(tags),
            protocol=protocol,
            status=status,
            owner=owner,
            limit=limit,
            cursor=cursor,
            **{"as": as_},
        )
        return parse_page(
            parse_json_object(await self._connection.send(ApiRequest(method="GET", path=AGENTS, params=params)))
        )

    async def list(
        self,
        *,
        tags: Iterable[str] = (),
        protocol: str | None = None,
        status: str | None = None,
        owner: str | None = None,
        as_: str | None = None,
    ) -> AsyncIterator[Agent]:
        """Every agent that the caller may see, page after page."""
        wanted = tuple(tags)
        cursor: str | None = None
        while True:
            page = await self.page(
                tags=wanted, protocol=protocol, status=status, owner=owner, limit=200, cursor=cursor, as_=as_
            )
            for agent in page.agents:
                yield agent
            if page.next_cursor is None:
                return
            cursor = page.next_cursor

    async def find(
        self,
        text: str,
        *,
        tags: Iterable[str] = (),
        preferred_tags: Iterable[str] = (),
        excluded_tags: Iterable[str] = (),
        protocols: Iterable[str] = (),
        statuses: Iterable[str] = (),
        constraints: Mapping[str, Any] | None = None,
        limit: int = 10,
        detail: Detail = "summary",
        explain: bool = False,
        min_score: float | None = None,
        context: Mapping[str, Any] | None = None,
        facets: Iterable[str] = (),
        diversity: bool = True,
    ) -> SearchResult:
        """The agents that fit a task, best first. `tags` must be there, `preferred_tags` help; `explain` tells why.

        `constraints` leave out whoever does not state to fulfil them (region, language, auth, max_latency_ms, max_cost,
        max_results_age_seconds). `min_score` leaves out weak candidates. `context` (locale, language, domain, region)
        orders near-ties. `facets` (tag, protocol, status, owner) counts all that the filters admit. At most two near duplicates
        are in each ten candidates unless `diversity` is False.
        """
        request = {
            "query": text,
            "required_tags": tuple(tags),
            "preferred_tags": tuple(preferred_tags),
            "excluded_tags": tuple(excluded_tags),
            "protocols": tuple(protocols),
            "statuses": tuple(statuses),
            "constraints": dict(constraints or {}),
            "limit": limit,
            "detail": detail,
            "include_evidence": explain,
            "min_score": min_score,
            "client_context": dict(context or {}),
            "facets": tuple(facets),
            "diversity": None if diversity else False,
        }
        return parse_search_result(parse_json_object(await self._connection.send(discover_request(request))))

    async def discover_agents(self, form: str) -> DiscoverValue:
        """The value of an RTFS `(discover-agents …)` form: cards or a failure, and both as RTFS text.

        The options of the form apply here: `:registry-uri` asks another registry, without this client's credentials;
        `:timeout-ms` bounds each wait for it; `:cache-policy` says whether a value of the last minute will do.
        """
        try:
            parsed = parse_discover(form)
        except InvalidRequest as error:
            return failed_discovery(error)
        cached = self._discovered.find(parsed)
        if cached is not None:
            return cached
        registry_uri = parsed.options.registry_uri or f"{self.base_url.rstrip('/')}/rtfs"
        call_id = uuid.uuid4().hex
        try:
            response = await self._registry(parsed).exchange(form_request(parsed, call_id))
        except WaypostError as error:
            return failed_discovery(error, registry_uri=registry_uri)
        value = parse_response(
            response.status_code, response.content, call_id, registry_uri=registry_uri, warnings=parsed.warnings
        )
        self._discovered.put(parsed, value)
        return value

    def _registry(self, form: DiscoverForm) -> Connection:
        uri = form.options.registry_uri
        if uri is None:
            return self._connection
        origin = registry_origin(uri)
        if origin not in self._registries:
            address = msgspec.structs.replace(self._address, base_url=origin, token=None, cert=None, cert_key=None)
            self._registries[origin] = Connection(address, self._connection.retry)
        return self._registries[origin]

    async def facets(
        self,
        *names: str,
        tags: Iterable[str] = (),
        protocol: str | None = None,
        status: str | None = None,
        owner: str | None = None,
    ) -> FacetOverview:
        """How many agents the list has in all and by tag, protocol, status and owner (or by those that are named)."""
        params = query_params(facet=names, tag=tuple(tags), protocol=protocol, status=status, owner=owner)
        call = ApiRequest(method="GET", path="/api/v1/facets", params=params)
        return parse_facets(parse_json_object(await self._connection.send(call)))

    async def watch(
        self, cursor: str | None = None, *, renewals: bool = False, include_agent: bool = False
    ) -> AsyncIterator[Change]:
        """Changes as they happen, after `cursor` ("0": all that are kept; None: from now on), without end.

        A broken connection is taken up where it broke. CursorTooOld means: list anew, then watch from now on.
        """
        params = query_params(renewals=renewals or None, include="agent" if include_agent else None)
        async for change in stream_changes(self._connection, params, cursor):
            yield change

    async def export(self, as_: str = "profile") -> AsyncIterator[dict[str, Any]]:
        """Every agent that the caller may see, in a dialect, or ("source") as it was received."""
        async for line in self.export_lines(as_):
            yield parse_json_body(line)

    async def export_lines(self, as_: str = "profile") -> AsyncIterator[bytes]:
        """The same, as the lines that were sent."""
        call = ApiRequest(method="GET", path=f"{AGENTS}:export", params=query_params(**{"as": as_}))
        async for line in self._connection.lines(call):
            yield line

    # --- Domains -----------------------------------------------------------------------------------------------------

    async def prove_domain(self, domain: str, method: str = "dns") -> DomainClaim:
        """Claim a domain, by `dns` or by `http`. The answer says what to publish where; `check_domain` then looks for it."""
        headers = {"Content-Type": "application/json"}
        content = dump_json({"domain": domain, "method": method})
        call = ApiRequest(method="POST", path=DOMAINS, headers=headers, content=content)
        return parse_domain_claim(parse_json_object(await self._connection.send(call)))

    async def check_domain(self, domain: str) -> DomainClaim:
        """Have the service look for the proof. ProofMissing while it is not there."""
        call = ApiRequest(method="POST", path=domain_path(domain, ":check"), repeatable=False)
        return parse_domain_claim(parse_json_object(await self._connection.send(call)))

    async def list_domains(self) -> tuple[DomainClaim, ...]:
        """The domains that the caller claims; for admin, all claims."""
        document = parse_json_object(await self._connection.send(ApiRequest(method="GET", path=DOMAINS)))
        return tuple(map(parse_domain_claim, document["domains"]))

    async def remove_domain(self, domain: str, subject: str | None = None) -> None:
        """Give up a domain. Admin may say whose claim it is."""
        params = query_params(subject=subject)
        await self._connection.send(
            ApiRequest(method="DELETE", path=domain_path(domain), params=params, repeatable=False)
        )

    # --- The service itself ------------------------------------------------------------------------------------------

    async def stats(self) -> Stats:
        """Figures of the service."""
        document = parse_json_object(await self._connection.send(ApiRequest(method="GET", path="/api/v1/stats")))
        return Stats(
            agents=document["agents"],
            indexing_pending=document.get("indexing_pending", 0),
            revision=document.get("revision"),
            document=document,
        )

    async def doctor(self) -> dict[str, Any]:
        """What protects the deployment, and what does not: findings with their severity. Only admin may ask."""
        return parse_json_object(await self._connection.send(ApiRequest(method="GET", path="/api/v1/doctor")))

    async def mint_token(self, sub: str, scopes: Iterable[str], ttl_seconds: int = 3600) -> MintedToken:
        """A token for a subject. Only admin may."""
        content = dump_json({"sub": sub, "scopes": tuple(scopes), "ttl_seconds": ttl_seconds})
        headers = {"Content-Type": "application/json"}
        call = ApiRequest(method="POST", path="/api/v1/tokens", headers=headers, content=content)
        document = parse_json_object(await self._connection.send(call))
        return MintedToken(token=document["token"], expires_at=document.get("expires_at"))

    async def audit(
        self,
        after: int = 0,
        *,
        limit: int | None = None,
        subject: str | None = None,
        object: str | None = None,  # noqa: A002
        action: str | None = None,
    ) -> AuditTrailPage:
        """Who changed what: entries of the audit trail after a number. Only admin may."""
        params = query_params(after=after, limit=limit, subject=subject, object=object, action=action)
        call = ApiRequest(method="GET", path="/api/v1/audit", params=params)
        return parse_audit_page(parse_json_object(await self._connection.send(call)))

    async def audit_checkpoint(self) -> LogCheckpoint:
        """Size and root of the audit trail, signed by the service. Only admin may."""
        headers = {"Accept": "application/json"}
        call = ApiRequest(method="GET", path="/api/v1/audit/checkpoint", headers=headers)
        return parse_log_checkpoint(parse_json_object(await self._connection.send(call)))

    async def audit_proof(
        self, *, entry: int | None = None, size: int | None = None, from_: int | None = None, to: int | None = None
    ) -> LogProof:
        """That `entry` is in the trail of `size`, or that the trail of `to` begins with that of `from_`. Only admin may."""
        params = query_params(entry=entry, size=size, to=to, **{"from": from_})
        call = ApiRequest(method="GET", path="/api/v1/audit/proof", params=params)
        return parse_log_proof(parse_json_object(await self._connection.send(call)))

    async def health(self) -> dict[str, Any]:
        """What the service says of itself when it is ready; Unavailable when it is not."""
        return parse_json_object(await self._connection.send(ApiRequest(method="GET", path="/readyz")))

    async def version(self) -> str:
        """The version of the service."""
        document = parse_json_object(await self._connection.send(ApiRequest(method="GET", path="/openapi.json")))
        return str(document["info"]["version"])

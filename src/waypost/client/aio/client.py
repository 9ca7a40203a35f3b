"""`Client`: the operations of a Waypost service as methods. The rules are those of the service."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
import msgspec

from waypost import limits
from waypost.client.agp_call import AsyncAgpCaller, agent_uri
from waypost.client.aio.connection import AgentConnection, Connection
from waypost.client.binding_policy import BindingPolicy
from waypost.client.calls import (
    AGP,
    CALLABLE_SCHEMES,
    AddressCheck,
    AgentAnswer,
    CallOptions,
    Pause,
    check_local,
    check_public,
    choose_target,
    start_call,
    with_a2a_version,
)
from waypost.client.http import EventStreamDecoder, Retry, ServerEvent, async_pause
from waypost.client.identity import load_chat_key
from waypost.client.keep import AsyncStopSignal, BackgroundTask, KeptAgent
from waypost.client.requests import (
    AGENTS,
    ALLOW,
    APIKEYS,
    DOMAINS,
    FEED,
    INVITATIONS,
    JSON,
    KEYS,
    PEERS,
    SWARMS,
    TASKS,
    ApiRequest,
    DiscoverCache,
    Document,
    Failure,
    Registrable,
    WriteOptions,
    agent_path,
    batch_request,
    batches,
    discover_request,
    document_bytes,
    drop_none,
    fetch_request,
    form_request,
    get_request,
    item_path,
    json_request,
    parse_batch_line,
    parse_change,
    parse_document,
    parse_json_body,
    parse_json_object,
    query_params,
    quote_etag,
    register_request,
    registry_origin,
    verify_request,
)
from waypost.errors import InvalidRequest, NotFound, RateLimited, Timeout, Unavailable, WaypostError
from waypost.model.events import EVENT_TYPES
from waypost.model.json import dump_json
from waypost.model.query import Detail, Match, QueryFederation
from waypost.model.resolution import Depth, OrganisationIndex, Resolution
from waypost.protocols.rtfs.discover_form import (
    DiscoverForm,
    DiscoverValue,
    failed_discovery,
    parse_discover,
    parse_response,
)
from waypost.responses.agents import (
    Agent,
    AgentHealth,
    AgentZone,
    Change,
    DiffResult,
    FetchResult,
    HistoryResult,
    Page,
    PendingChangeView,
    Receipt,
)
from waypost.responses.federation import PeerList, PeerView
from waypost.responses.messaging import (
    AcceptedTask,
    InvitationList,
    InvitationView,
    LeasedTask,
    LeasedTaskList,
    RedeemedInvitation,
    SwarmList,
    SwarmMembership,
    SwarmMessage,
    SwarmMessageList,
    SwarmView,
    TaskList,
    TaskStatus,
)
from waypost.responses.search import FacetOverview, SearchResult
from waypost.responses.service import Diagnosis, MintedToken, ServiceKey, ServiceKeyList, ServiceState, Stats
from waypost.responses.trust import (
    AllowEntry,
    AllowListResponse,
    ApiKeyList,
    ApiKeyRow,
    AuditTrailPage,
    CreatedApiKey,
    DomainClaim,
    DomainClaimList,
    LogCheckpoint,
    LogProof,
    PublishedLeaves,
    RevocationList,
    RevokedItem,
    TrustedKey,
    TrustStorePage,
    VerificationResult,
)
from waypost.settings import is_loopback, load_connection_settings, load_settings

log = logging.getLogger("waypost.client")

# The service sends a bookmark at least every WATCH_BOOKMARK_SECONDS, so a longer silence means a dead connection.
WATCH_READ_SECONDS = 2.5 * limits.WATCH_BOOKMARK_SECONDS

_FIRST_POLL_SECONDS = 0.05
_LONGEST_POLL_SECONDS = 2.0
_TAKE_MARGIN_SECONDS = 30.0  # beyond the wait that the service was asked for


class Client:
    """A client of a Waypost service. Without arguments it uses the service and the token that the command would use.

    Every method raises a subclass of `WaypostError` when the service refuses the request or cannot be reached.

    Example:
        async with Client("http://127.0.0.1:8440") as wp:
            for candidate in (await wp.find("translate an invoice")).candidates:
                print(candidate.name, candidate.endpoint)
    """

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
        """Create a client. No connection is opened until the first request.

        Args:
            base_url: The address of the service.
            token: A token or an API key.
            timeout: Seconds to wait for an answer.
            data: The data folder in which a local service wrote its admin token.
            config: A settings file instead of the default one.
            ca: A PEM file with the certificate authorities of the service.
            cert: A PEM file with a client certificate.
            cert_key: A PEM file with the key of the client certificate.
            retry: When and how often to repeat a failed request.
            signer: Signs requests with an agent's key instead of sending a token (`waypost.client.identity`).
            transport: An httpx2 transport, for tests.
        """
        flags = {"server": base_url, "token": token, "timeout": timeout, "data": data}
        flags |= {"ca": ca, "cert": cert, "cert_key": cert_key}
        address = load_connection_settings(flags, config=config)
        self.base_url = address.base_url
        self._address = address
        self._data, self._config = data, config
        self._connection = Connection(address, retry or Retry(), transport, signer)
        self._registries: dict[str, Connection] = {}  # registries that RTFS forms name, by origin
        self._discovered = DiscoverCache()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.base_url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Leaving the `with` block does this.

        Example:
            wp = Client("http://127.0.0.1:8440")
            print(await wp.version())
            await wp.aclose()
        """
        for connection in (self._connection, *self._registries.values()):
            await connection.aclose()

    # --- Registration ------------------------------------------------------------------------------------------------

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
        """Register a document of any dialect.

        Args:
            document: A mapping, bytes, JSON text, or the path of a file.
            dialect: The dialect, if it should not be recognised from the content.
            visibility: public, internal or private.
            ttl_seconds: The lease to request.
            if_match: Update only if this is the entity tag of the current version.
            idempotency_key: Makes a repeated request one change. Default: a random key, so that a request whose answer was
                lost can be repeated.
            base: The origin of relative references in the document.
            fetched_from: Where the document is published.

        Example:
            receipt = await wp.register(Path("agent-card.json"), visibility="internal")
            print(receipt.id)
        """
        options = WriteOptions(
            dialect=dialect,
            visibility=visibility,
            ttl_seconds=ttl_seconds,
            if_match=if_match,
            idempotency_key=idempotency_key or uuid.uuid4().hex,
            base=base,
            fetched_from=fetched_from,
        )
        return await self._connection.ask(Receipt, register_request(document_bytes(document), options))

    @asynccontextmanager
    async def keep(
        self,
        document: Registrable,
        *,
        dialect: str | None = None,
        visibility: str | None = None,
        ttl_seconds: int = limits.KEEP_TTL_SECONDS,
        base: str | None = None,
        fetched_from: str | None = None,
        on_change: Callable[[KeptAgent], None] | None = None,
    ) -> AsyncIterator[KeptAgent]:
        """Keep an agent registered during a `with` block: register it, renew its lease in the background, withdraw it.

        If the program dies, the lease ends by itself. If the service loses the agent or is restarted, it is registered again.

        Args:
            document: A document of any dialect, as for `register`.
            dialect: The dialect, if it should not be recognised from the content.
            visibility: public, internal or private.
            ttl_seconds: The lease to request. It is renewed after a third of it.
            base: The origin of relative references in the document.
            fetched_from: Where the document is published.
            on_change: Called after each renewal, and after each failed one.

        Example:
            async with Client() as wp, wp.keep(Path("agent.json")) as agent:
                print(agent.id, agent.receipt.expires_at)
        """
        content = document_bytes(document)

        async def register() -> Receipt:
            return await self.register(
                content,
                dialect=dialect,
                visibility=visibility,
                ttl_seconds=ttl_seconds,
                base=base,
                fetched_from=fetched_from,
            )

        agent = KeptAgent(await register(), ttl_seconds, on_change)

        async def renew_repeatedly(stop: AsyncStopSignal) -> None:
            while not agent.is_lost and not await stop.wait(agent.seconds_to_renewal(random.random())):
                try:
                    try:
                        agent.note_renewal(await self.renew(agent.id, ttl_seconds))
                    except NotFound:
                        agent.note_renewal(await register())
                except WaypostError as error:
                    agent.note_failure(error)

        task = BackgroundTask(renew_repeatedly)
        try:
            yield agent
        finally:
            await task.stop()
            try:
                await self.withdraw(agent.id)
            except WaypostError as error:  # the lease ends by itself
                log.warning("%s was not withdrawn: %s", agent.id, error)

    async def register_many(
        self, documents: Iterable[Registrable], *, visibility: str | None = None, ttl_seconds: int | None = None
    ) -> AsyncIterator[Receipt | Failure]:
        """Register JSON documents in batches. Yields one result for each document, in order.

        A document that is refused does not affect the others. The receipts have only id, outcome and etag.

        Args:
            documents: The documents, as for `register`.
            visibility: public, internal or private.
            ttl_seconds: The lease to request.

        Example:
            async for result in wp.register_many(Path("agents").glob("*.json")):
                print(result.outcome)
        """
        options = WriteOptions(visibility=visibility, ttl_seconds=ttl_seconds)
        for lines in batches(documents):
            async for line in self._connection.lines(batch_request(lines, options)):
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
        """Let the service fetch the documents at an address.

        Args:
            url: The URL of a document; an origin, whose well-known documents are tried; or a domain or an agent URI, which
                is resolved.
            save: Register the documents.
            dialect: The dialect, if it should not be recognised from the content.
            visibility: public, internal or private.
            ttl_seconds: The lease to request.
            digest: The `digest` of an earlier answer. If the content has changed since, nothing is registered.
            organisation: For a domain: fetch every agent that it lists.

        Example:
            found = await wp.fetch("https://agents.example.com/.well-known/agent-card.json")
            for agent in found.agents:
                print(agent.dialect, agent.name)
        """
        body = {"url": url, "save": save, "dialect": dialect, "digest": digest, "organisation": organisation or None}
        options = WriteOptions(visibility=visibility, ttl_seconds=ttl_seconds)
        return await self._connection.ask(FetchResult, fetch_request(body, options))

    async def renew(self, id: str, ttl_seconds: int | None = None) -> Receipt:  # noqa: A002
        """Renew the lease of an agent.

        Args:
            id: An id or alias of the agent.
            ttl_seconds: The lease to request.

        Example:
            receipt = await wp.register(Path("agent.json"))
            renewed = await wp.renew(receipt.id, ttl_seconds=3600)
            print(renewed.expires_at)
        """
        body = drop_none({"ttl_seconds": ttl_seconds})
        return await self._connection.ask(Receipt, json_request(agent_path(id, ":renew"), body, repeatable=True))

    async def share(self, id: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Receipt:  # noqa: A002
        """Change who sees a private agent. The receipt lists all `invitees`.

        Args:
            id: An id or alias of the agent.
            add: Subjects that may see it from now on.
            remove: Subjects that may not see it any more.

        Example:
            receipt = await wp.register(Path("agent.json"), visibility="private")
            shared = await wp.share(receipt.id, add=["alice", "bob"])
            print(shared.invitees)
        """
        body = {"add": list(add), "remove": list(remove)}
        return await self._connection.ask(Receipt, json_request(agent_path(id, ":share"), body))

    async def host(self, id: str, domain: str | None) -> Receipt:  # noqa: A002
        """Serve an agent's documents to requests whose `Host` is a domain. Needs `admin`.

        Args:
            id: An id or alias of the agent.
            domain: The domain; None ends it.

        Example:
            receipt = await wp.register(Path("agent.json"))
            await wp.host(receipt.id, "translator.example.com")
        """
        request = json_request(agent_path(id, ":host"), {"domain": domain}, repeatable=True)
        return await self._connection.ask(Receipt, request)

    async def withdraw(self, id: str, if_match: str | None = None) -> None:  # noqa: A002
        """Remove an agent. Only its owner and admins may.

        Args:
            id: An id or alias of the agent.
            if_match: Remove it only if this is the entity tag of the current version.

        Example:
            receipt = await wp.register(Path("agent.json"))
            await wp.withdraw(receipt.id)
        """
        headers = drop_none({"If-Match": quote_etag(if_match)})
        await self._connection.send(ApiRequest(method="DELETE", path=agent_path(id), headers=headers, repeatable=False))

    async def held(self, id: str) -> PendingChangeView:  # noqa: A002
        """The pending change of a verified agent. Raises NotFound if there is none.

        Args:
            id: An id or alias of the agent.

        Example:
            pending = await wp.held("agent:translator.example.com")
            for change in pending.changes:
                print(change.part, change.before, change.after)
        """
        return await self._connection.ask(PendingChangeView, get_request(agent_path(id, ":held")))

    async def confirm(self, id: str, etag: str) -> Receipt:  # noqa: A002
        """Confirm a pending change. Only the owner and admins may.

        Args:
            id: An id or alias of the agent.
            etag: The `etag` of the pending change.

        Example:
            pending = await wp.held("agent:translator.example.com")
            await wp.confirm("agent:translator.example.com", pending.etag)
        """
        return await self._connection.ask(Receipt, json_request(agent_path(id, ":confirm"), {"etag": etag}))

    async def reject(self, id: str, etag: str) -> Receipt:  # noqa: A002
        """Reject a pending change. Only the owner and admins may.

        Args:
            id: An id or alias of the agent.
            etag: The `etag` of the pending change.

        Example:
            pending = await wp.held("agent:translator.example.com")
            await wp.reject("agent:translator.example.com", pending.etag)
        """
        return await self._connection.ask(Receipt, json_request(agent_path(id, ":reject"), {"etag": etag}))

    # --- Calls -------------------------------------------------------------------------------------------------------

    async def call(
        self,
        id: str,  # noqa: A002
        text: str = "",
        *,
        tool: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        policy: BindingPolicy | None = None,
        check_address: AddressCheck | None = None,
    ) -> AgentAnswer:
        """Call an agent by its own binding: A2A (JSON-RPC or REST, 1.0 or 0.3), MCP over HTTP, AGP, or plain HTTP.

        The agent is called from this program; the service only tells where it is, and its token is not sent to the agent. Over
        AGP the agent must prove its key; the caller has the key `keys/chat.pem` of the data folder, created on first use.

        Args:
            id: An id, alias or short name of the agent.
            text: What to ask it. For an MCP tool that takes more than one text, its arguments as JSON.
            tool: The tool of an MCP server, if it has several.
            arguments: The arguments of the tool.
            headers: Headers for the agent, such as its credentials.
            policy: Which bindings may be used. Default: public addresses, and local ones if the service is on this machine.
            check_address: Raises an error for an IP address and a port that must not be connected to.

        Example:
            async with Client("http://127.0.0.1:8440") as wp:
                print(await wp.call("invoice-translator", "Translate this invoice."))
        """
        document = await self.document(id)
        if policy is None:
            is_local = is_loopback(httpx2.URL(self.base_url).host)
            policy = BindingPolicy(schemes=CALLABLE_SCHEMES, local_addresses=is_local)
        agent = Agent.from_document(document.body)
        target = choose_target(agent, policy, document.trust)
        check = check_address or (check_local if policy.local_addresses else check_public)
        if target.protocol == AGP:
            peer = agent_uri(agent.id, (await self.document(agent.id, "adp")).body)
            key = load_chat_key(load_settings({"data": self._data}, config=self._config).data)
            reply = await AsyncAgpCaller(self, self._address, key, check).ask(peer, text)
            return AgentAnswer(reply.text, agent_id=agent.id, protocol=AGP, endpoint=target.endpoint)
        if target.protocol.startswith("a2a"):
            target = with_a2a_version(target, (await self.document(agent.id, "a2a")).body)
        steps = start_call(target, text, CallOptions(tool=tool, arguments=arguments, headers=dict(headers or {})))
        connection = AgentConnection(target, check, self._address)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    await async_pause(step.seconds)
                    step = steps.send(None)
                else:
                    step = steps.send(await connection.send(step))
        except StopIteration as end:
            answer, data = end.value
        finally:
            await connection.aclose()
        return AgentAnswer(answer, agent_id=agent.id, protocol=target.protocol, endpoint=target.endpoint, data=data)

    # --- Reading -----------------------------------------------------------------------------------------------------

    async def get(self, id: str) -> Agent:  # noqa: A002
        """One agent as a profile document.

        Args:
            id: An id, an alias or a short name of the agent.

        Example:
            agent = await wp.get("invoice-translator")
            print(agent.name, agent.endpoint)
        """
        return Agent.from_document((await self.document(id)).body)

    async def document(self, id: str, as_: str = "profile", form: str | None = None) -> Document:  # noqa: A002
        """One agent in a dialect.

        Args:
            id: An id, an alias or a short name of the agent.
            as_: profile, af, rtfs, announce, adp, a2a, ard, mcp or oasf.
            form: `profile` with `as_="rtfs"`: `content` is the `(agent-profile …)` text. `current` with `as_="a2a"`
                or `"mcp"`: the current form of the format, whatever was registered. `0.3` with `as_="a2a"`: the form of
                A2A 0.3.

        Example:
            card = await wp.document("invoice-translator", as_="a2a")
            print(card.body["name"], card.etag)
        """
        request = get_request(agent_path(id), form=form, **{"as": as_})
        return parse_document(await self._connection.send(request), as_)

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
        """One page of the agents that the caller may see.

        Args:
            tags: List only agents with all of these tags.
            protocol: List only agents with a binding of this protocol.
            status: List only agents with this status.
            owner: List only agents of this subject.
            limit: The size of the page.
            cursor: `next_cursor` of the page before.
            as_: The dialect of the documents.

        Example:
            page = await wp.page(tags=["finance"], limit=20)
            if page.next_cursor:
                page = await wp.page(tags=["finance"], limit=20, cursor=page.next_cursor)
        """
        request = get_request(
            AGENTS,
            tag=tuple(tags),
            protocol=protocol,
            status=status,
            owner=owner,
            limit=limit,
            cursor=cursor,
            **{"as": as_},
        )
        return await self._connection.ask(Page, request)

    async def list(
        self,
        *,
        tags: Iterable[str] = (),
        protocol: str | None = None,
        status: str | None = None,
        owner: str | None = None,
        as_: str | None = None,
    ) -> AsyncIterator[Agent]:
        """Every agent that the caller may see, from all pages.

        Args:
            tags: List only agents with all of these tags.
            protocol: List only agents with a binding of this protocol.
            status: List only agents with this status.
            owner: List only agents of this subject.
            as_: The dialect of the documents.

        Example:
            async for agent in wp.list(tags=["finance"]):
                print(agent.id, agent.name)
        """
        tags = tuple(tags)
        cursor: str | None = None
        while True:
            page = await self.page(
                tags=tags,
                protocol=protocol,
                status=status,
                owner=owner,
                limit=limits.PAGE_MAX,
                cursor=cursor,
                as_=as_,
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
        min_match: Match | None = None,
        context: Mapping[str, Any] | None = None,
        facets: Iterable[str] = (),
        diversity: bool = True,
        federation: QueryFederation = "none",
    ) -> SearchResult:
        """Find the agents that fit a task, best first.

        Args:
            text: The task in words.
            tags: Tags that an agent must have.
            preferred_tags: Tags that raise the score.
            excluded_tags: Tags that an agent must not have.
            protocols: Protocols of which an agent must speak one.
            statuses: Statuses of which an agent must have one.
            constraints: Requirements that an agent must state to meet: region, language, auth, max_latency_ms, max_cost,
                max_results_age_seconds.
            limit: The number of candidates.
            detail: minimal, summary or full.
            explain: Include the evidence for each candidate.
            min_score: Leave out candidates with a lower score.
            min_match: Leave out candidates with a weaker match: strong, possible or weak.
            context: locale, language, domain and region of the caller; they order near-ties.
            facets: Count all agents that pass the filters by tag, protocol, status or owner.
            diversity: Limit near duplicates to two in each ten candidates.
            federation: auto: also ask the registries that the operator allowed; they get the text, the tags, the
                protocols and the statuses.

        Example:
            result = await wp.find("translate an invoice", tags=["finance"], limit=5)
            for candidate in result.candidates:
                print(candidate.id, candidate.match)
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
            "min_match": min_match,
            "client_context": dict(context or {}),
            "facets": tuple(facets),
            "diversity": None if diversity else False,
            "federation": None if federation == "none" else federation,
        }
        return await self._connection.ask(SearchResult, discover_request(request))

    async def discover_agents(self, form: str) -> DiscoverValue:
        """Evaluate an RTFS `(discover-agents …)` form: cards or a failure, both also as RTFS text.

        The client applies the options of the form: `:registry-uri` asks another registry, without this client's
        credentials; `:timeout-ms` limits each wait for it; `:cache-policy` allows a value of the last minute.

        Args:
            form: The text of the form.

        Example:
            value = await wp.discover_agents('(discover-agents {:capabilities ["translation"]})')
            print(value.text)
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
        """Count the agents of a list, in total and by facet.

        Args:
            *names: The facets: tag, protocol, status, owner. Default: all.
            tags: Count only agents with all of these tags.
            protocol: Count only agents with a binding of this protocol.
            status: Count only agents with this status.
            owner: Count only agents of this subject.

        Example:
            overview = await wp.facets("tag", "protocol", status="active")
            for tag in overview.facets["tag"]:
                print(tag.value, tag.count)
        """
        request = get_request(
            "/api/v1/facets", facet=names, tag=tuple(tags), protocol=protocol, status=status, owner=owner
        )
        return await self._connection.ask(FacetOverview, request)

    async def watch(
        self,
        cursor: str | None = None,
        *,
        query: str | None = None,
        min_match: Match | None = None,
        renewals: bool = False,
        include_agent: bool = False,
    ) -> AsyncIterator[Change]:
        """Follow changes as they happen, each once and in order. A lost connection is resumed.

        Raises CursorTooOld if the cursor is older than the stored changes: list again, then watch without a cursor.

        Args:
            cursor: Start after this cursor. "0": with the oldest stored change. Default: now.
            query: A task in words: only changes of agents that fit it, each with its `match`.
            min_match: With a query, the weakest match: strong, possible (default) or weak.
            renewals: Include renewed leases.
            include_agent: Include the agent in each change.

        Example:
            async for change in wp.watch("0"):
                print(change.type, change.id)
                if change.type == "registered":
                    break
        """
        params = query_params(
            query=query, min_match=min_match, renewals=renewals or None, include="agent" if include_agent else None
        )
        attempt = 0
        is_open = False
        while True:
            failure: WaypostError = Unavailable("The service ended the stream.", hint="Watch again.")
            try:
                async for event in self._watch_events(params, cursor):
                    is_open = True
                    cursor = event.id or cursor
                    if event.event in EVENT_TYPES:
                        attempt = 0
                        yield parse_change(event)
            except (Unavailable, RateLimited) as error:
                failure = error
            attempt += 1
            if not is_open or cursor is None or attempt > limits.CLIENT_WATCH_ATTEMPTS:
                raise failure
            await async_pause((failure.retry_after or 0) + self._connection.retry.backoff(attempt, random.random()))

    async def _watch_events(
        self, params: tuple[tuple[str, str], ...], cursor: str | None
    ) -> AsyncIterator[ServerEvent]:
        """The events of one connection, after an `open` event with the cursor at which the stream starts."""
        start = () if cursor is None else (("from", cursor),)
        headers = {"Accept": "text/event-stream"} | ({} if cursor is None else {"Last-Event-ID": cursor})
        request = ApiRequest(
            method="GET",
            path="/api/v1/watch",
            params=(*params, *start),
            headers=headers,
            read_seconds=WATCH_READ_SECONDS,
        )
        decoder = EventStreamDecoder()
        async with self._connection.stream(request) as (response_headers, chunks):
            yield ServerEvent("open", "", response_headers.get("Waypost-Cursor") if cursor is None else None)
            async for chunk in chunks:
                for event in decoder.feed(chunk):
                    yield event

    async def export(self, as_: str = "profile") -> AsyncIterator[dict[str, Any]]:
        """Every agent that the caller may see.

        Args:
            as_: The dialect of the documents; "source": each in the dialect in which it was registered.

        Example:
            async for document in wp.export(as_="source"):
                print(document)
        """
        async for line in self.export_lines(as_):
            yield parse_json_body(line)

    async def export_lines(self, as_: str = "profile") -> AsyncIterator[bytes]:
        """As `export`, as JSON lines.

        Args:
            as_: The dialect of the documents; "source": each in the dialect in which it was registered.

        Example:
            with open("agents.jsonl", "wb") as file:
                async for line in wp.export_lines():
                    file.writelines((line, os.linesep.encode()))
        """
        async for line in self._connection.lines(get_request(f"{AGENTS}:export", **{"as": as_})):
            yield line

    async def history(self, id: str, limit: int | None = None) -> HistoryResult:  # noqa: A002
        """The stored versions of an agent that the caller could see, newest first.

        Args:
            id: An id or alias of the agent.
            limit: The number of versions.

        Example:
            receipt = await wp.register(Path("agent.json"))
            for version in (await wp.history(receipt.id)).versions:
                print(version.at, version.etag, version.changed)
        """
        return await self._connection.ask(HistoryResult, get_request(agent_path(id, ":history"), limit=limit))

    async def diff(self, id: str, from_: str | None = None, to: str | None = None) -> DiffResult:  # noqa: A002
        """Compare two versions of an agent.

        Args:
            id: An id or alias of the agent.
            from_: The entity tag of a version. Default: the one before `to`.
            to: The entity tag of a version. Default: the current one.

        Example:
            agent = Agent("urn:example:adder", "Adder", "Adds numbers.").bind("https", "https://adder.example.com/")
            await wp.register(agent)
            await wp.register({**agent, "description": "Adds and subtracts numbers."})
            for difference in (await wp.diff(agent.id)).differences:
                print(difference)
        """
        return await self._connection.ask(DiffResult, get_request(agent_path(id, ":diff"), to=to, **{"from": from_}))

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
        """The DNS records that lead to an agent.

        Args:
            id: An id, an alias or the domain of the agent.
            format: The format of the text: bind, managed or terraform.
            target: The host that serves the agent, if it is not the domain.
            port: The port of that host.
            ttl: The TTL of the records in seconds.
            org: Include the index of this organisation.
            addresses: Addresses of the host.
            spki: SHA-256 digests in hex of certificate keys for TLSA. Default: the certificate of the service.

        Example:
            zone = await wp.zone("agent:translator.example.com", target="agents.example.com", port=443)
            print(zone.text)
        """
        request = get_request(
            agent_path(id, ":zone"),
            format=format,
            target=target,
            port=port,
            ttl=ttl,
            org=org,
            address=tuple(addresses),
            spki=tuple(spki),
        )
        return await self._connection.ask(AgentZone, request)

    # --- Checks ------------------------------------------------------------------------------------------------------

    async def verify(self, id: str) -> VerificationResult:  # noqa: A002
        """Check the documents of an agent now. Do not call an agent whose `level` is failed.

        Args:
            id: An id or alias of the agent.

        Example:
            receipt = await wp.register(Path("agent.json"))
            result = await wp.verify(receipt.id)
            print(result.level, result.checks)
        """
        return await self._connection.ask(VerificationResult, get_request(agent_path(id, ":verify")))

    async def verify_document(self, document: Registrable, dialect: str | None = None) -> VerificationResult:
        """Check a document with the keys that the service trusts, without registering it.

        Args:
            document: The document, as for `register`.
            dialect: The dialect, if it should not be recognised from the content.

        Example:
            result = await wp.verify_document(Path("agent-card.json"))
            if result.level == "failed":
                print("Do not call this agent.")
        """
        return await self._connection.ask(VerificationResult, verify_request(document_bytes(document), dialect))

    async def agent_health(self, id: str) -> AgentHealth:  # noqa: A002
        """The state of an agent's endpoint, if the service checks it. Only its owner learns why a check fails.

        Args:
            id: An id or alias of the agent.

        Example:
            receipt = await wp.register(Path("agent.json"))
            health = await wp.agent_health(receipt.id)
            print(health.state, health.since)
        """
        return await self._connection.ask(AgentHealth, get_request(agent_path(id, ":health")))

    async def resolve(self, name: str, until: Depth = "key", *, fresh: bool = False) -> Resolution:
        """Let the service resolve a name to an agent, and verify it.

        Args:
            name: A domain, an agent URI, or the https URL of a document.
            until: How far to resolve: dns, document or key.
            fresh: Ignore cached answers.

        Example:
            found = await wp.resolve("translator.example.com", until="dns")
            print(found.agent, found.outcome, found.endpoints)
        """
        request = get_request("/api/v1/resolve", name=name, until=until, fresh="true" if fresh else None)
        return await self._connection.ask(Resolution, request)

    async def organisation(self, name: str) -> OrganisationIndex:
        """The agents that an organisation lists: its index or catalog, the aliases at `_agents`, or its TXT list.

        Args:
            name: The domain of the organisation.

        Example:
            index = await wp.organisation("example.com")
            for agent in index.entries:
                print(agent.name, agent.url)
        """
        return await self._connection.ask(OrganisationIndex, get_request("/api/v1/organisation", name=name))

    # --- Domains -----------------------------------------------------------------------------------------------------

    async def prove_domain(self, domain: str, method: str = "dns") -> DomainClaim:
        """Claim a domain. The claim says which line to publish where; `check_domain` then looks for it.

        Args:
            domain: The domain.
            method: dns or http.

        Example:
            claim = await wp.prove_domain("example.com")
            print("Publish the TXT record", claim.place, claim.line)
        """
        request = json_request(DOMAINS, {"domain": domain, "method": method}, repeatable=True)
        return await self._connection.ask(DomainClaim, request)

    async def check_domain(self, domain: str) -> DomainClaim:
        """Let the service look for the proof of a domain. Raises ProofMissing if it is not there.

        Args:
            domain: The domain.

        Example:
            await wp.prove_domain("example.com")
            try:
                print((await wp.check_domain("example.com")).state)
            except errors.ProofMissing as error:
                print(error.hint)
        """
        request = ApiRequest(method="POST", path=item_path(DOMAINS, domain, ":check"), repeatable=False)
        return await self._connection.ask(DomainClaim, request)

    async def list_domains(self) -> tuple[DomainClaim, ...]:
        """The domain claims of the caller; for an admin, all of them.

        Example:
            for claim in await wp.list_domains():
                print(claim.domain, claim.state)
        """
        return (await self._connection.ask(DomainClaimList, get_request(DOMAINS))).domains

    async def remove_domain(self, domain: str, subject: str | None = None) -> None:
        """Remove a domain claim.

        Args:
            domain: The domain.
            subject: Whose claim; for admins.

        Example:
            await wp.prove_domain("example.com")
            await wp.remove_domain("example.com")
        """
        path, params = item_path(DOMAINS, domain), query_params(subject=subject)
        await self._connection.send(ApiRequest(method="DELETE", path=path, params=params, repeatable=False))

    # --- Allow-list and trust store ----------------------------------------------------------------------------------

    async def allow_list(self) -> tuple[AllowEntry, ...]:
        """The rules of the allow-list. Needs `admin`.

        Example:
            for entry in await wp.allow_list():
                print(entry.rule, entry.added_by)
        """
        return (await self._connection.ask(AllowListResponse, get_request(ALLOW))).rules

    async def allow_add(self, rule: str) -> AllowEntry:
        """Let agents announce. Needs `admin`.

        Args:
            rule: An agent_id, `key:sha256:<hex>`, `san:<suffix>` or `*`.

        Example:
            await wp.allow_add("san:.agents.example.com")
        """
        return await self._connection.ask(AllowEntry, json_request(ALLOW, {"rule": rule}))

    async def allow_remove(self, rule: str) -> None:
        """Remove a rule of the allow-list. Needs `admin`.

        Args:
            rule: The rule.

        Example:
            await wp.allow_add("san:.agents.example.com")
            await wp.allow_remove("san:.agents.example.com")
        """
        await self._connection.send(ApiRequest(method="DELETE", path=item_path(ALLOW, rule), repeatable=False))

    async def keys_list(
        self, agent_id: str | None = None, *, limit: int | None = None, cursor: str | None = None
    ) -> TrustStorePage:
        """One page of the trust store: the keys of all agents, then revocations. Needs `admin`.

        Args:
            agent_id: List only the keys and revocations of this agent.
            limit: The size of the page.
            cursor: `next_cursor` of the page before.

        Example:
            for key in (await wp.keys_list()).keys:
                print(key.agent_id, key.key_id, key.state)
        """
        return await self._connection.ask(
            TrustStorePage, get_request(KEYS, agent_id=agent_id, limit=limit, cursor=cursor)
        )

    async def keys_trust(self, agent_id: str, public_key: str) -> TrustedKey:
        """Bind a key to an agent and retire the keys before it. Needs `admin`.

        Args:
            agent_id: An agent_id, any id, or a domain.
            public_key: The key in PEM.

        Example:
            key = await wp.keys_trust("urn:example:translator", Path("translator.pem").read_text())
            print(key.key_id)
        """
        return await self._connection.ask(
            TrustedKey, json_request(KEYS, {"agent_id": agent_id, "public_key": public_key})
        )

    async def keys_revoke(
        self,
        *,
        key_id: str | None = None,
        agent_id: str | None = None,
        serial: str | None = None,
        token_id: str | None = None,
        reason: str | None = None,
    ) -> RevokedItem:
        """Revoke a key, an agent, a certificate or a token for good. Needs `admin`. Give exactly one of the names.

        Args:
            key_id: A key, as `sha256:` and 64 hex digits.
            agent_id: An agent.
            serial: The serial number of a certificate in hex.
            token_id: The id of a token.
            reason: Why.

        Example:
            key = await wp.keys_trust("urn:example:translator", Path("translator.pem").read_text())
            await wp.keys_revoke(key_id=key.key_id, reason="The laptop was stolen.")
        """
        body = {"key_id": key_id, "agent_id": agent_id, "serial": serial, "token_id": token_id, "reason": reason}
        return await self._connection.ask(RevokedItem, json_request(f"{KEYS}:revoke", drop_none(body)))

    async def revocations(self) -> tuple[RevokedItem, ...]:
        """All revoked keys and agents.

        Example:
            for revoked in await wp.revocations():
                print(revoked.what, revoked.revoked_at)
        """
        revoked: list[RevokedItem] = []
        cursor: str | None = None
        while True:
            page = await self._connection.ask(RevocationList, get_request("/agents/revocations", cursor=cursor))
            revoked += page.revoked
            cursor = page.next_cursor
            if cursor is None:
                return tuple(revoked)

    # --- The service -------------------------------------------------------------------------------------------------

    async def stats(self) -> Stats:
        """Counts of the agents that the caller may see.

        Example:
            stats = await wp.stats()
            print(stats.agents, stats.by_status)
        """
        return await self._connection.ask(Stats, get_request("/api/v1/stats"))

    async def doctor(self) -> Diagnosis:
        """The protections of the deployment, and those that are missing. Needs `admin`.

        Example:
            for finding in (await wp.doctor()).findings:
                print(finding.severity, finding.message)
        """
        return await self._connection.ask(Diagnosis, get_request("/api/v1/doctor"))

    async def mint_token(self, sub: str, scopes: Iterable[str], ttl_seconds: int = 3600) -> MintedToken:
        """Mint a token. Needs `admin`.

        Args:
            sub: The subject of the token.
            scopes: Its scopes: discover:read, discover:write, admin.
            ttl_seconds: How long it is valid.

        Example:
            minted = await wp.mint_token("alice", ["discover:read", "discover:write"], ttl_seconds=3600)
            async with Client("http://127.0.0.1:8440", minted.token) as alice:
                await alice.register(Path("agent-card.json"))
        """
        body = {"sub": sub, "scopes": tuple(scopes), "ttl_seconds": ttl_seconds}
        return await self._connection.ask(MintedToken, json_request("/api/v1/tokens", body, repeatable=True))

    async def apikeys_list(self) -> tuple[ApiKeyRow, ...]:
        """The API keys of the service, without their secrets. Needs `admin`.

        Example:
            for key in await wp.apikeys_list():
                print(key.id, key.sub, key.expires_at)
        """
        return (await self._connection.ask(ApiKeyList, get_request(APIKEYS))).apikeys

    async def apikeys_create(
        self, sub: str, scopes: Iterable[str], *, ttl_seconds: int | None = None, note: str = ""
    ) -> CreatedApiKey:
        """Create an API key. The result is the only place where it is shown. Needs `admin`.

        Args:
            sub: The subject of the key.
            scopes: Its scopes: discover:read, discover:write, admin.
            ttl_seconds: How long it is valid; without it, until it is revoked.
            note: A text for the list of keys.

        Example:
            created = await wp.apikeys_create("ci", ["discover:write"], ttl_seconds=90 * 86400, note="build server")
            print(created.key)
        """
        body = {"sub": sub, "scopes": tuple(scopes), "ttl_seconds": ttl_seconds, "note": note}
        given = {name: value for name, value in body.items() if value not in (None, "")}
        return await self._connection.ask(CreatedApiKey, json_request(APIKEYS, given))

    async def apikeys_revoke(self, key_id: str) -> None:
        """Revoke an API key, at once and for good. Needs `admin`.

        Args:
            key_id: The id of the key, not the key.

        Example:
            created = await wp.apikeys_create("ci", ["discover:write"])
            await wp.apikeys_revoke(created.id)
        """
        await self._connection.send(ApiRequest(method="DELETE", path=item_path(APIKEYS, key_id), repeatable=False))

    async def peers_list(self) -> tuple[PeerView, ...]:
        """The registries that the service follows. Needs `admin`.

        Example:
            for peer in await wp.peers_list():
                print(peer.name, peer.state, peer.records)
        """
        return (await self._connection.ask(PeerList, get_request(PEERS))).peers

    async def peers_show(self, name: str) -> PeerView:
        """One peer. Needs `admin`.

        Args:
            name: The name of the peer.

        Example:
            peer = await wp.peers_show("partner")
            print(peer.state, peer.last_contact, peer.error)
        """
        return await self._connection.ask(PeerView, get_request(item_path(PEERS, name)))

    async def peers_add(
        self,
        url: str,
        *,
        name: str | None = None,
        kind: str | None = None,
        pull: bool = True,
        ask: bool = False,
        namespaces: Iterable[str] = (),
        visibility: str = "internal",
        reexport: bool = False,
        key: str | None = None,
        token: str | None = None,
        every_seconds: float | None = None,
        max_records: int | None = None,
        dry_run: bool = False,
    ) -> PeerView:
        """Follow another registry. Needs `admin`.

        Args:
            url: The base URL of the other registry.
            name: A short name; by default the host of the URL.
            kind: What the other side is; by default it is asked.
            pull: Whether to copy its public agents.
            ask: Whether searches with `federation="auto"` are passed on to it.
            namespaces: Patterns of ids, with `*`, that are taken; none: all.
            visibility: Who sees its agents here.
            reexport: Whether its agents are passed on in the feed of this service.
            key: The fingerprint of the key that the peer must have.
            token: A bearer token for the peer.
            every_seconds: The pause between two pulls of kinds without a feed.
            max_records: With more records than this the peer is paused.
            dry_run: Contact it and store nothing.

        Example:
            peer = await wp.peers_add("https://registry.example.com", name="partner", namespaces=["agent:*.example.com"])
            print(peer.state)
        """
        body = {
            "url": url,
            "name": name,
            "kind": kind,
            "pull": pull,
            "ask": ask,
            "namespaces": tuple(namespaces),
            "visibility": visibility,
            "reexport": reexport,
            "key": key,
            "token": token,
            "every_seconds": every_seconds,
            "max_records": max_records,
            "dry_run": dry_run,
        }
        given = {member: value for member, value in body.items() if value is not None}
        return await self._connection.ask(PeerView, json_request(PEERS, given))

    async def peers_sync(self, name: str) -> PeerView:
        """Pull from a peer now. Needs `admin`.

        Args:
            name: The name of the peer.

        Example:
            peer = await wp.peers_sync("partner")
            print(peer.records)
        """
        return await self._change_peer(name, "sync")

    async def peers_pause(self, name: str) -> PeerView:
        """Stop pulling from a peer; its agents stay. Needs `admin`.

        Args:
            name: The name of the peer.

        Example:
            await wp.peers_pause("partner")
        """
        return await self._change_peer(name, "pause")

    async def peers_resume(self, name: str) -> PeerView:
        """Pull from a paused peer again. Needs `admin`.

        Args:
            name: The name of the peer.

        Example:
            await wp.peers_resume("partner")
        """
        return await self._change_peer(name, "resume")

    async def _change_peer(self, name: str, verb: str) -> PeerView:
        request = ApiRequest(method="POST", path=f"{item_path(PEERS, name)}:{verb}", repeatable=True)
        return await self._connection.ask(PeerView, request)

    async def peers_remove(self, name: str, *, keep: bool = False) -> None:
        """Stop following a peer and remove its agents. Needs `admin`.

        Args:
            name: The name of the peer.
            keep: Leave its agents here until their leases end.

        Example:
            await wp.peers_remove("partner", keep=True)
        """
        params = (("keep", "true"),) if keep else ()
        request = ApiRequest(method="DELETE", path=item_path(PEERS, name), params=params, repeatable=False)
        await self._connection.send(request)

    async def feed(
        self, cursor: str | None = None, *, wait_seconds: float = 0, limit: int | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """One page of the change feed: public agents with their documents, then a bookmark with the next cursor.

        Args:
            cursor: The cursor of the last bookmark; without it all agents come first.
            wait_seconds: How long to wait for a change at the end of the feed.
            limit: The size of the page.

        Example:
            async for line in wp.feed(limit=100):
                print(line["type"])
        """
        query = {"from": cursor, "wait": f"{wait_seconds:g}", "limit": limit}
        async for line in self._connection.lines(get_request(FEED, **query)):
            yield msgspec.json.decode(line, type=dict[str, Any])

    async def audit(
        self,
        after: int = 0,
        *,
        limit: int | None = None,
        subject: str | None = None,
        object: str | None = None,  # noqa: A002
        action: str | None = None,
    ) -> AuditTrailPage:
        """Entries of the audit trail. Needs `admin`.

        Args:
            after: List the entries after this number.
            limit: The size of the page.
            subject: List only changes by this subject.
            object: List only changes of this agent, key, rule or domain.
            action: List only changes of this kind.

        Example:
            for entry in (await wp.audit(subject="alice", limit=50)).entries:
                print(entry.at, entry.action, entry.object)
        """
        request = get_request("/api/v1/audit", after=after, limit=limit, subject=subject, object=object, action=action)
        return await self._connection.ask(AuditTrailPage, request)

    async def audit_checkpoint(self) -> LogCheckpoint:
        """Size and root of the audit trail, signed by the service. Needs `admin`.

        Example:
            checkpoint = await wp.audit_checkpoint()
            print(checkpoint.size, checkpoint.root.hex())
        """
        headers = {"Accept": "application/json"}
        request = ApiRequest(method="GET", path="/api/v1/audit/checkpoint", headers=headers)
        return await self._connection.ask(LogCheckpoint, request)

    async def audit_proof(
        self, *, entry: int | None = None, size: int | None = None, from_: int | None = None, to: int | None = None
    ) -> LogProof:
        """Prove that the audit trail contains an entry, or that it only grew. Needs `admin`.

        Args:
            entry: The number of an entry.
            size: The size of the trail that contains the entry. Default: the current size.
            from_: An earlier size.
            to: A later size. Default: the current size.

        Example:
            size = (await wp.audit_checkpoint()).size
            proof = await wp.audit_proof(entry=1, size=size)
            print(len(proof.hashes))
        """
        request = get_request("/api/v1/audit/proof", entry=entry, size=size, to=to, **{"from": from_})
        return await self._connection.ask(LogProof, request)

    async def published_checkpoint(self) -> LogCheckpoint:
        """The signed checkpoint of the published log: one leaf each hour, which commits to the audit trail. Needs no token.

        Example:
            checkpoint = await wp.published_checkpoint()
            print(checkpoint.note)
        """
        request = ApiRequest(method="GET", path="/audit/checkpoint", headers={"Accept": "application/json"})
        return await self._connection.ask(LogCheckpoint, request)

    async def published_proof(
        self, *, entry: int | None = None, size: int | None = None, from_: int | None = None, to: int | None = None
    ) -> LogProof:
        """Prove that the published log contains a leaf, or that it only grew. Needs no token.

        Args:
            entry: The number of a leaf.
            size: The size of the log that contains the leaf. Default: the current size.
            from_: An earlier size.
            to: A later size. Default: the current size.

        Example:
            size = (await wp.published_checkpoint()).size
            proof = await wp.published_proof(from_=1, to=size)
            print(len(proof.hashes))
        """
        request = get_request("/audit/proof", entry=entry, size=size, to=to, **{"from": from_})
        return await self._connection.ask(LogProof, request)

    async def published_checkpoints(self, after: int = 0, *, limit: int | None = None) -> PublishedLeaves:
        """What the leaves of the published log commit to. Needs `admin`.

        Args:
            after: List the leaves after this number.
            limit: The size of the page.

        Example:
            for leaf in (await wp.published_checkpoints()).leaves:
                print(leaf.number, leaf.at, leaf.size)
        """
        request = get_request("/api/v1/audit/published", after=after, limit=limit)
        return await self._connection.ask(PublishedLeaves, request)

    async def service_keys(self) -> ServiceKeyList:
        """The keys of the service itself. Needs `admin`.

        Example:
            for key in (await wp.service_keys()).keys:
                print(key.name, key.changed_at)
        """
        return await self._connection.ask(ServiceKeyList, get_request("/api/v1/service-keys"))

    async def rotate_service_key(self, name: str, *, overlap_seconds: int | None = None) -> ServiceKey:
        """Replace a key of the service. Needs `admin`.

        Args:
            name: `token`, `identity` or `cursor`.
            overlap_seconds: How long the old key is accepted. Default: as long as anything made with it can be valid.

        Example:
            key = await wp.rotate_service_key("cursor", overlap_seconds=3600)
            print(key.accepted_until)
        """
        path = item_path("/api/v1/service-keys", name, ":rotate")
        params = query_params(overlap_seconds=overlap_seconds)
        request = ApiRequest(method="POST", path=path, params=params, repeatable=False)
        return await self._connection.ask(ServiceKey, request)

    async def health(self) -> ServiceState:
        """The state of the service. Raises Unavailable if it is not ready.

        Example:
            print((await wp.health()).status)
        """
        return await self._connection.ask(ServiceState, get_request("/readyz"))

    async def version(self) -> str:
        """The version of the service.

        Example:
            print(await wp.version())
        """
        document = parse_json_object(await self._connection.send(get_request("/openapi.json")))
        return str(document["info"]["version"])

    # --- Tasks -------------------------------------------------------------------------------------------------------

    async def send_task(
        self,
        task: str,
        input: Any = None,  # noqa: A002
        *,
        agent: str | None = None,
        callback: str | None = None,
        ttl_seconds: int | None = None,
        idempotency_key: str | None = None,
        as_agent: str | None = None,
    ) -> AcceptedTask:
        """Send a task to an agent, or to the service itself (`discover`, `echo`).

        Args:
            task: The name of the task.
            input: Its input, any JSON value.
            agent: The agent that does it. Default: the service.
            callback: An https URL to which the result is posted.
            ttl_seconds: How long the task may wait.
            idempotency_key: Makes a repeated request one task. Default: a random key, so that a request whose answer was
                lost can be repeated.
            as_agent: An agent of the caller, hosted by the service, as the sender.

        Example:
            sent = await wp.send_task("discover", {"query": "translate an invoice"})
            done = await wp.wait_task(sent.task_id)
            print(done.result)
        """
        body = {"task": task, "input": input} | drop_none({"callback": callback, "ttl_seconds": ttl_seconds})
        request = ApiRequest(
            method="POST",
            path=TASKS,
            params=query_params(agent=agent, **{"as": as_agent}),
            headers={"Content-Type": JSON, "Idempotency-Key": idempotency_key or uuid.uuid4().hex},
            content=dump_json(body),
        )
        return await self._connection.ask(AcceptedTask, request)

    async def task_status(self, task_id: str) -> TaskStatus:
        """The state of a task that the caller sent, or that is for an agent of the caller.

        Args:
            task_id: The id of the task.

        Example:
            sent = await wp.send_task("echo", "hello")
            print((await wp.task_status(sent.task_id)).status)
        """
        return await self._connection.ask(TaskStatus, get_request(item_path(TASKS, task_id)))

    async def wait_task(self, task_id: str, seconds: float = 60.0) -> TaskStatus:
        """Wait until a task is done. Raises Timeout if it takes longer; the task continues.

        Args:
            task_id: The id of the task.
            seconds: How long to wait.

        Example:
            sent = await wp.send_task("echo", "hello")
            done = await wp.wait_task(sent.task_id, seconds=30)
            print(done.status, done.result)
        """
        waited, pause_seconds = 0.0, _FIRST_POLL_SECONDS
        while True:
            status = await self.task_status(task_id)
            if status.is_done:
                return status
            if waited >= seconds:
                raise Timeout(
                    f"The task is {status.status} after {seconds:g} seconds.",
                    path="seconds",
                    hint="Wait longer, or ask for its status later.",
                )
            await async_pause(min(pause_seconds, seconds - waited))
            waited += pause_seconds
            pause_seconds = min(2 * pause_seconds, _LONGEST_POLL_SECONDS)

    async def cancel_task(self, task_id: str) -> TaskStatus:
        """Cancel a task. Raises Conflict if it has ended.

        Args:
            task_id: The id of the task.

        Example:
            receipt = await wp.register(Path("agent.json"))
            sent = await wp.send_task("translate", {"text": "hello"}, agent=receipt.id)
            print((await wp.cancel_task(sent.task_id)).status)
        """
        return await self._connection.ask(TaskStatus, ApiRequest(method="DELETE", path=item_path(TASKS, task_id)))

    async def list_tasks(
        self, agent: str | None = None, status: str | None = None, limit: int | None = None
    ) -> tuple[TaskStatus, ...]:
        """The tasks that are not done.

        Args:
            agent: List the tasks for this agent of the caller. Default: the tasks that the caller sent.
            status: accepted or running.
            limit: The number of tasks.

        Example:
            for task in await wp.list_tasks(status="accepted"):
                print(task.task_id, task.status)
        """
        request = get_request(TASKS, agent=agent, status=status, limit=limit)
        return (await self._connection.ask(TaskList, request)).tasks

    async def take_tasks(
        self, agent: str, *, limit: int = 1, lease_seconds: int | None = None, wait_seconds: int = 0
    ) -> tuple[LeasedTask, ...]:
        """Take tasks for an agent of the caller. The worker reports on each task before its lease ends.

        Args:
            agent: The agent.
            limit: The number of tasks.
            lease_seconds: How long a task is reserved for this worker.
            wait_seconds: How long to wait for a task if there is none.

        Example:
            receipt = await wp.register(Path("agent.json"))
            for task in await wp.take_tasks(receipt.id, limit=10, lease_seconds=60):
                await wp.report_task(task.task_id, task.lease, result={"text": "done"})
        """
        body = {"agent": agent, "limit": limit} | drop_none(
            {"lease_seconds": lease_seconds, "wait_seconds": wait_seconds or None}
        )
        request = ApiRequest(
            method="POST",
            path=f"{TASKS}:take",
            headers={"Content-Type": JSON},
            content=dump_json(body),
            repeatable=False,
            read_seconds=wait_seconds + _TAKE_MARGIN_SECONDS,
        )
        return (await self._connection.ask(LeasedTaskList, request)).tasks

    async def report_task(
        self,
        task_id: str,
        lease: str,
        status: str = "succeeded",
        *,
        result: Any = None,
        error: Mapping[str, str] | None = None,
        lease_seconds: int | None = None,
    ) -> TaskStatus:
        """Report on a task that the caller took.

        Args:
            task_id: The id of the task.
            lease: The lease of the task.
            status: succeeded, failed, or running to renew the lease.
            result: The result of a task that succeeded, any JSON value.
            error: `code` and `message` of a task that failed.
            lease_seconds: The new lease of a task that is running.

        Example:
            receipt = await wp.register(Path("agent.json"))
            await wp.send_task("translate", {"text": "hello"}, agent=receipt.id)
            for task in await wp.take_tasks(receipt.id, limit=10):
                await wp.report_task(task.task_id, task.lease, result={"text": "bonjour"})
        """
        body: dict[str, Any] = {"lease": lease, "status": status}
        if status == "succeeded":
            body["result"] = result
        body |= drop_none({"error": None if error is None else dict(error), "lease_seconds": lease_seconds})
        return await self._connection.ask(TaskStatus, json_request(item_path(TASKS, task_id, ":report"), body))

    # --- Swarms ------------------------------------------------------------------------------------------------------

    async def join_swarm(
        self, agent: str, task: str, role: str = "participant", *, host: str | None = None, callback: str | None = None
    ) -> SwarmMembership:
        """Add an agent to the swarm of a task.

        Args:
            agent: The agent.
            task: The task of the swarm.
            role: The role of the agent.
            host: The agent that the swarm belongs to. Default: the service.
            callback: An https URL to which messages of the swarm are posted.

        Example:
            swarm = await wp.join_swarm("agent:bob.example.com", "translation review", role="reviewer")
            print(swarm.swarm_id, swarm.members)
        """
        body = {"agent": agent, "task": task, "role": role} | drop_none({"callback": callback})
        request = json_request(f"{SWARMS}/join", body, params=query_params(agent=host), repeatable=True)
        return await self._connection.ask(SwarmMembership, request)

    async def leave_swarm(self, swarm_id: str, agent: str) -> SwarmView:
        """Remove an agent from a swarm. A swarm without members ends.

        Args:
            swarm_id: The id of the swarm.
            agent: The agent.

        Example:
            swarm = await wp.join_swarm("agent:bob.example.com", "quarterly report")
            await wp.leave_swarm(swarm.swarm_id, "agent:bob.example.com")
        """
        return await self._connection.ask(
            SwarmView, json_request(item_path(SWARMS, swarm_id, ":leave"), {"agent": agent})
        )

    async def list_swarms(self) -> tuple[SwarmView, ...]:
        """The swarms to which the caller added agents.

        Example:
            for swarm in await wp.list_swarms():
                print(swarm.swarm_id, swarm.task)
        """
        return (await self._connection.ask(SwarmList, get_request(SWARMS))).swarms

    async def swarm_members(self, swarm_id: str) -> SwarmView:
        """A swarm and its members. Only members may ask.

        Args:
            swarm_id: The id of the swarm.

        Example:
            joined = await wp.join_swarm("agent:bob.example.com", "quarterly report")
            for member in (await wp.swarm_members(joined.swarm_id)).members:
                print(member.agent, member.role)
        """
        return await self._connection.ask(SwarmView, get_request(item_path(SWARMS, swarm_id)))

    async def broadcast(
        self, swarm_id: str, agent: str, content: str, content_type: str = "text/plain"
    ) -> SwarmMessage:
        """Send a message to all members of a swarm.

        Args:
            swarm_id: The id of the swarm.
            agent: The member that sends it.
            content: The message.
            content_type: The media type of the message.

        Example:
            joined = await wp.join_swarm("agent:bob.example.com", "quarterly report")
            await wp.broadcast(joined.swarm_id, "agent:bob.example.com", "The draft is ready.")
        """
        body = {"agent": agent, "content": content, "contentType": content_type}
        return await self._connection.ask(SwarmMessage, json_request(item_path(SWARMS, swarm_id, ":broadcast"), body))

    async def swarm_messages(self, swarm_id: str, after: int = 0, limit: int | None = None) -> tuple[SwarmMessage, ...]:
        """The messages of a swarm, oldest first.

        Args:
            swarm_id: The id of the swarm.
            after: List the messages after this number.
            limit: The number of messages.

        Example:
            joined = await wp.join_swarm("agent:bob.example.com", "quarterly report")
            for message in await wp.swarm_messages(joined.swarm_id):
                print(message.number, message.from_, message.content)
        """
        request = get_request(item_path(SWARMS, swarm_id, ":messages"), after=after, limit=limit)
        return (await self._connection.ask(SwarmMessageList, request)).messages

    # --- Invitations -------------------------------------------------------------------------------------------------

    async def invite(self, agent: str, *, uses: int = 1, ttl_seconds: int | None = None) -> InvitationView:
        """Make an invitation to an agent of the caller. Only this answer has its code.

        Args:
            agent: The agent.
            uses: How often the invitation can be redeemed.
            ttl_seconds: How long it is valid.

        Example:
            invitation = await wp.invite("agent:translator.example.com", uses=3, ttl_seconds=86400)
            print(invitation.code)
        """
        body = {"agent": agent, "uses": uses} | drop_none({"ttl_seconds": ttl_seconds})
        return await self._connection.ask(InvitationView, json_request(INVITATIONS, body))

    async def list_invitations(self, agent: str | None = None, limit: int | None = None) -> tuple[InvitationView, ...]:
        """The invitations that the caller made.

        Args:
            agent: List only the invitations to this agent of the caller.
            limit: The number of invitations.

        Example:
            for invitation in await wp.list_invitations():
                print(invitation.id, invitation.uses)
        """
        request = get_request(INVITATIONS, agent=agent, limit=limit)
        return (await self._connection.ask(InvitationList, request)).invitations

    async def revoke_invitation(self, invitation_id: str) -> None:
        """Revoke an invitation. Subjects that redeemed it still see the agent; `share` changes that.

        Args:
            invitation_id: The id of the invitation.

        Example:
            invitation = await wp.invite("agent:translator.example.com")
            await wp.revoke_invitation(invitation.id)
        """
        await self._connection.send(ApiRequest(method="DELETE", path=item_path(INVITATIONS, invitation_id)))

    async def redeem(self, invitation: Mapping[str, Any] | str) -> RedeemedInvitation:
        """Redeem an invitation. The agent's document must have the key that the invitation names.

        Args:
            invitation: The invitation as a document, or the code of an invitation of this service.

        Example:
            invitation = await wp.invite("agent:translator.example.com")
            redeemed = await wp.redeem(invitation.code)
            print(redeemed.agent)
        """
        body = {"code": invitation} if isinstance(invitation, str) else {"invitation": dict(invitation)}
        return await self._connection.ask(RedeemedInvitation, json_request(f"{INVITATIONS}:redeem", body))

# Generated from waypost/client/aio by scripts/unasync.py. Edit that, then run the script.
"""`SyncClient`: the registry as methods, each blocking until it is answered."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec

from waypost.client.agent import Agent
from waypost.client.audit import AuditPage, LogCheckpoint, LogProof, audit_page_of, checkpoint_of, proof_of
from waypost.client.calls import (
    AGENTS,
    DOMAINS,
    Call,
    Registrable,
    Writing,
    agent_path,
    batch_call,
    batches,
    claim_of,
    discover_call,
    document_bytes,
    document_of,
    domain_path,
    fetch_call,
    fetched_of,
    json_call,
    json_of,
    line_result,
    loads,
    page_of,
    present,
    quoted,
    receipt_of,
    register_call,
    verify_call,
)
from waypost.client.history import Comparison, History, comparison_of, history_of
from waypost.client.results import (
    AgentHealth,
    Change,
    Document,
    DomainClaim,
    Failure,
    Fetched,
    Found,
    HeldChange,
    MintedToken,
    Overview,
    Page,
    Receipt,
    Stats,
    Verification,
    found_of,
    held_of,
    overview_of,
    verification_of,
)
from waypost.client.retry import Retry
from waypost.client.sync.connection import Connection
from waypost.client.sync.meeting import MeetingCalls
from waypost.client.sync.trust import TrustCalls
from waypost.client.sync.watch import changes
from waypost.client.sync.zones import ZoneCalls
from waypost.model.json import dump_json
from waypost.model.query import Detail
from waypost.model.resolution import Depth, OrganisationIndex, Resolution
from waypost.settings import load_connection


class SyncClient(TrustCalls, MeetingCalls, ZoneCalls):
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
        signer: httpx.Auth | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """With a `signer` (`waypost.client.agent_signer`) an agent signs its requests instead of showing a token."""
        flags = {"server": base_url, "token": token, "timeout": timeout, "data": data}
        flags |= {"ca": ca, "cert": cert, "cert_key": cert_key}
        address = load_connection(flags, config=config)
        self.base_url = address.base_url
        self._connection = Connection(address, retry or Retry(), transport, signer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Leaving the `with` block does it."""
        self._connection.close()

    # --- Writing -----------------------------------------------------------------------------------------------------

    def register(
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
        writing = Writing(
            dialect=dialect,
            visibility=visibility,
            ttl_seconds=ttl_seconds,
            if_match=if_match,
            idempotency_key=idempotency_key or uuid.uuid4().hex,
            base=base,
            fetched_from=fetched_from,
        )
        return receipt_of(json_of(self._connection.send(register_call(document_bytes(document), writing))))

    def register_many(
        self, documents: Iterable[Registrable], *, visibility: str | None = None, ttl_seconds: int | None = None
    ) -> Iterator[Receipt | Failure]:
        """Register JSON documents in batches; one result for each, in order. One that is refused stops no other."""
        writing = Writing(visibility=visibility, ttl_seconds=ttl_seconds)
        for lines in batches(documents):
            for line in self._connection.lines(batch_call(lines, writing)):
                yield line_result(line)

    def fetch(
        self,
        url: str,
        save: bool = False,
        *,
        dialect: str | None = None,
        visibility: str | None = None,
        ttl_seconds: int | None = None,
        digest: str | None = None,
        organisation: bool = False,
    ) -> Fetched:
        """Let the service fetch the documents at an address, and register them with `save`.

        An origin stands for its well-known documents. A domain or an agent URI is resolved, and comes with how far it is
        proven; with `organisation` so is every agent that the domain lists. `digest` of what was seen before keeps anything
        else from being saved.
        """
        wanted = {"url": url, "save": save, "dialect": dialect, "digest": digest, "organisation": organisation or None}
        writing = Writing(visibility=visibility, ttl_seconds=ttl_seconds)
        return fetched_of(json_of(self._connection.send(fetch_call(wanted, writing))))

    def renew(self, id: str, ttl_seconds: int | None = None) -> Receipt:  # noqa: A002
        """Prolong the lease of an agent."""
        content = dump_json({} if ttl_seconds is None else {"ttl_seconds": ttl_seconds})
        headers = {"Content-Type": "application/json"}
        call = Call(method="POST", path=agent_path(id, ":renew"), headers=headers, content=content)
        return receipt_of(json_of(self._connection.send(call)))

    def share(self, id: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Receipt:  # noqa: A002
        """Let subjects see a private agent, or no longer. The receipt's `invitees` are all who are let in."""
        call = json_call(agent_path(id, ":share"), {"add": list(add), "remove": list(remove)})
        return receipt_of(json_of(self._connection.send(call)))

    def host(self, id: str, domain: str | None) -> Receipt:  # noqa: A002
        """Answer for an agent under a domain, by `Host`; None ends it. Only admin may."""
        headers = {"Content-Type": "application/json"}
        content = dump_json({"domain": domain})
        call = Call(method="POST", path=agent_path(id, ":host"), headers=headers, content=content)
        return receipt_of(json_of(self._connection.send(call)))

    def withdraw(self, id: str, if_match: str | None = None) -> None:  # noqa: A002
        """Remove an agent. Only its owner (or admin) may."""
        etag = quoted(if_match)
        headers = {} if etag is None else {"If-Match": etag}
        self._connection.send(Call(method="DELETE", path=agent_path(id), headers=headers, repeatable=False))

    def verify(self, id: str) -> Verification:  # noqa: A002
        """Check the documents of an agent now. `level` is verified, self_asserted or failed; invoke nothing that failed."""
        return verification_of(json_of(self._connection.send(Call(method="GET", path=agent_path(id, ":verify")))))

    def verify_document(self, document: Registrable, dialect: str | None = None) -> Verification:
        """Check a document with the keys that the service trusts. Nothing is registered."""
        return verification_of(json_of(self._connection.send(verify_call(document_bytes(document), dialect))))

    def resolve(self, name: str, until: Depth = "key", *, fresh: bool = False) -> Resolution:
        """From a domain, an agent URI or the https address of a document to an agent, asked by the service.

        `level` is how far it is proven, `verdicts` says so rung by rung, `steps` tells what was asked. `until` stops at the
        DNS or at the document; `fresh` asks anew, whatever the service remembers.
        """
        params = present(name=name, until=until, fresh="true" if fresh else None)
        call = Call(method="GET", path="/api/v1/resolve", params=params)
        return msgspec.convert(json_of(self._connection.send(call)), Resolution)

    def organisation(self, name: str) -> OrganisationIndex:
        """The agents that an organisation lists: its index or catalogue, the aliases at `_agents`, or its TXT list."""
        call = Call(method="GET", path="/api/v1/organisation", params=present(name=name))
        return msgspec.convert(json_of(self._connection.send(call)), OrganisationIndex)

    def held(self, id: str) -> HeldChange:  # noqa: A002
        """The change of a verified agent that waits for its owner. NotFound when none does."""
        return held_of(json_of(self._connection.send(Call(method="GET", path=agent_path(id, ":held")))))

    def confirm(self, id: str, etag: str) -> Receipt:  # noqa: A002
        """Let the change pass that waits under this etag. Only its owner (or admin) may."""
        return receipt_of(json_of(self._connection.send(json_call(agent_path(id, ":confirm"), {"etag": etag}))))

    def reject(self, id: str, etag: str) -> Receipt:  # noqa: A002
        """Forget the change that waits under this etag. Only its owner (or admin) may."""
        return receipt_of(json_of(self._connection.send(json_call(agent_path(id, ":reject"), {"etag": etag}))))

    # --- Reading -----------------------------------------------------------------------------------------------------

    def get(self, id: str) -> Agent:  # noqa: A002
        """The agent with this id, or with this alias."""
        return Agent.from_document((self.document(id)).body)

    def document(self, id: str, as_: str = "profile") -> Document:  # noqa: A002
        """The agent in a dialect: profile, af, rtfs, announce, adp, a2a, ard, mcp or oasf."""
        response = self._connection.send(Call(method="GET", path=agent_path(id), params=present(**{"as": as_})))
        return document_of(response, as_)

    def history(self, id: str, limit: int | None = None) -> History:  # noqa: A002
        """The versions of an agent that are kept and that the caller could see, the newest first."""
        call = Call(method="GET", path=agent_path(id, ":history"), params=present(limit=limit))
        return history_of(json_of(self._connection.send(call)))

    def agent_health(self, id: str) -> AgentHealth:  # noqa: A002
        """How the endpoint of an agent answers, where the service checks it; why it fails is told to its owner."""
        call = Call(method="GET", path=agent_path(id, ":health"))
        return msgspec.convert(json_of(self._connection.send(call)), AgentHealth)

    def diff(self, id: str, from_: str | None = None, to: str | None = None) -> Comparison:  # noqa: A002
        """How two versions differ, by their etags; without them the current one and the one before it."""
        call = Call(method="GET", path=agent_path(id, ":diff"), params=present(to=to, **{"from": from_}))
        return comparison_of(json_of(self._connection.send(call)))

    def page(
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
        params = present(
            tag=tuple(tags),
            protocol=protocol,
            status=status,
            owner=owner,
            limit=limit,
            cursor=cursor,
            **{"as": as_},
        )
        return page_of(json_of(self._connection.send(Call(method="GET", path=AGENTS, params=params))))

    def list(
        self,
        *,
        tags: Iterable[str] = (),
        protocol: str | None = None,
        status: str | None = None,
        owner: str | None = None,
        as_: str | None = None,
    ) -> Iterator[Agent]:
        """Every agent that the caller may see, page after page."""
        wanted = tuple(tags)
        cursor: str | None = None
        while True:
            page = self.page(
                tags=wanted, protocol=protocol, status=status, owner=owner, limit=200, cursor=cursor, as_=as_
            )
            yield from page.agents
            if page.next_cursor is None:
                return
            cursor = page.next_cursor

    def find(
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
    ) -> Found:
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
        return found_of(json_of(self._connection.send(discover_call(request))))

    def facets(
        self,
        *names: str,
        tags: Iterable[str] = (),
        protocol: str | None = None,
        status: str | None = None,
        owner: str | None = None,
    ) -> Overview:
        """How many agents the list has in all and by tag, protocol, status and owner (or by those that are named)."""
        params = present(facet=names, tag=tuple(tags), protocol=protocol, status=status, owner=owner)
        call = Call(method="GET", path="/api/v1/facets", params=params)
        return overview_of(json_of(self._connection.send(call)))

    def watch(
        self, cursor: str | None = None, *, renewals: bool = False, include_agent: bool = False
    ) -> Iterator[Change]:
        """Changes as they happen, after `cursor` ("0": all that are kept; None: from now on), without end.

        A broken connection is taken up where it broke. CursorTooOld means: list anew, then watch from now on.
        """
        params = present(renewals=renewals or None, include="agent" if include_agent else None)
        yield from changes(self._connection, params, cursor)

    def export(self, as_: str = "profile") -> Iterator[dict[str, Any]]:
        """Every agent that the caller may see, in a dialect, or ("source") as it was received."""
        for line in self.export_lines(as_):
            yield loads(line)

    def export_lines(self, as_: str = "profile") -> Iterator[bytes]:
        """The same, as the lines that were sent."""
        call = Call(method="GET", path=f"{AGENTS}:export", params=present(**{"as": as_}))
        yield from self._connection.lines(call)

    # --- Domains -----------------------------------------------------------------------------------------------------

    def prove_domain(self, domain: str, method: str = "dns") -> DomainClaim:
        """Claim a domain, by `dns` or by `http`. The answer says what to publish where; `check_domain` then looks for it."""
        headers = {"Content-Type": "application/json"}
        content = dump_json({"domain": domain, "method": method})
        call = Call(method="POST", path=DOMAINS, headers=headers, content=content)
        return claim_of(json_of(self._connection.send(call)))

    def check_domain(self, domain: str) -> DomainClaim:
        """Have the service look for the proof. ProofMissing while it is not there."""
        call = Call(method="POST", path=domain_path(domain, ":check"), repeatable=False)
        return claim_of(json_of(self._connection.send(call)))

    def list_domains(self) -> tuple[DomainClaim, ...]:
        """The domains that the caller claims; for admin, all claims."""
        document = json_of(self._connection.send(Call(method="GET", path=DOMAINS)))
        return tuple(map(claim_of, document["domains"]))

    def remove_domain(self, domain: str, subject: str | None = None) -> None:
        """Give up a domain. Admin may say whose claim it is."""
        params = present(subject=subject)
        self._connection.send(Call(method="DELETE", path=domain_path(domain), params=params, repeatable=False))

    # --- The service itself ------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Figures of the service."""
        document = json_of(self._connection.send(Call(method="GET", path="/api/v1/stats")))
        return Stats(
            agents=document["agents"],
            indexing_pending=document.get("indexing_pending", 0),
            revision=document.get("revision"),
            document=document,
        )

    def doctor(self) -> dict[str, Any]:
        """What protects the deployment, and what does not: findings with their severity. Only admin may ask."""
        return json_of(self._connection.send(Call(method="GET", path="/api/v1/doctor")))

    def mint_token(self, sub: str, scopes: Iterable[str], ttl_seconds: int = 3600) -> MintedToken:
        """A token for a subject. Only admin may."""
        content = dump_json({"sub": sub, "scopes": tuple(scopes), "ttl_seconds": ttl_seconds})
        headers = {"Content-Type": "application/json"}
        call = Call(method="POST", path="/api/v1/tokens", headers=headers, content=content)
        document = json_of(self._connection.send(call))
        return MintedToken(token=document["token"], expires_at=document.get("expires_at"))

    def audit(
        self,
        after: int = 0,
        *,
        limit: int | None = None,
        subject: str | None = None,
        object: str | None = None,  # noqa: A002
        action: str | None = None,
    ) -> AuditPage:
        """Who changed what: entries of the audit trail after a number. Only admin may."""
        params = present(after=after, limit=limit, subject=subject, object=object, action=action)
        call = Call(method="GET", path="/api/v1/audit", params=params)
        return audit_page_of(json_of(self._connection.send(call)))

    def audit_checkpoint(self) -> LogCheckpoint:
        """Size and root of the audit trail, signed by the service. Only admin may."""
        headers = {"Accept": "application/json"}
        call = Call(method="GET", path="/api/v1/audit/checkpoint", headers=headers)
        return checkpoint_of(json_of(self._connection.send(call)))

    def audit_proof(
        self, *, entry: int | None = None, size: int | None = None, from_: int | None = None, to: int | None = None
    ) -> LogProof:
        """That `entry` is in the trail of `size`, or that the trail of `to` begins with that of `from_`. Only admin may."""
        params = present(entry=entry, size=size, to=to, **{"from": from_})
        call = Call(method="GET", path="/api/v1/audit/proof", params=params)
        return proof_of(json_of(self._connection.send(call)))

    def health(self) -> dict[str, Any]:
        """What the service says of itself when it is ready; Unavailable when it is not."""
        return json_of(self._connection.send(Call(method="GET", path="/readyz")))

    def version(self) -> str:
        """The version of the service."""
        document = json_of(self._connection.send(Call(method="GET", path="/openapi.json")))
        return str(document["info"]["version"])

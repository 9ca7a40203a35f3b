"""Invitations over HTTP: `/api/v1/invitations`, and the well-known document of a private agent for an invitee (P-6)."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import quote

import msgspec

from waypost import limits
from waypost.errors import AddressDenied, FetchFailed, InvalidDocument, Unauthorized, WaypostError
from waypost.messaging.invitations import (
    InvitationPin,
    InvitationStore,
    InvitedDocument,
    StoredInvitation,
    check_invited_document,
    fetch_invited_document,
    invalid_invitation_error,
    unknown_invitation_error,
)
from waypost.messaging.request_signatures import AGENT_URI_PREFIX as AGENT_SCHEME
from waypost.model.json import JsonObject
from waypost.model.principal import SCOPE_WRITE, Principal, may_see, no_such_agent, require_scope
from waypost.model.registration import Registration
from waypost.model.times import to_rfc3339
from waypost.protocols.adp.invitation import SCHEME, Invitation, parse_code, parse_invitation
from waypost.registry.audit_trail import audit_entry_by
from waypost.registry.ports import OutboundSender as Outgoing
from waypost.registry.registry import Registry
from waypost.responses.messaging import InvitationList, InvitationView, RedeemedInvitation
from waypost.server.api.adp.requesters import owned_agent
from waypost.server.api.adp.schemas import TEXT, TIME, Schema, object_schema
from waypost.server.auth.authenticator import Authenticator
from waypost.server.hosted_agents.documents import WELL_KNOWN_PATH, HostedDocuments
from waypost.server.hosted_agents.keys import HostedKeys
from waypost.server.http.asgi import AnyResponse, Request, Response, json_response
from waypost.server.http.request_params import (
    limit_parameter,
    parse_integer,
    read_limit,
    read_object,
    refuse_fetch_loops,
)
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.renderer import parse_rendered

_INVITATION_DOCUMENT = object_schema(
    ["protocol", "invite"],
    protocol=TEXT,
    invite=object_schema(
        ["code", "agent", "wellKnown", "pubkey", "expires"],
        code=TEXT,
        agent=TEXT,
        wellKnown=TEXT,
        pubkey=TEXT,
        expires=TIME,
        signature=TEXT,
    ),
)

INVITE_SCHEMA = object_schema(
    ["agent"],
    agent=TEXT,
    uses={"type": "integer", "minimum": 1, "maximum": limits.INVITATION_USES, "default": 1},
    ttl_seconds={
        "type": "integer",
        "minimum": limits.INVITATION_TTL_MIN_SECONDS,
        "maximum": limits.INVITATION_TTL_MAX_SECONDS,
        "default": limits.INVITATION_TTL_SECONDS,
    },
)

REDEEM_SCHEMA: Schema = {
    "type": "object",
    "properties": {"code": TEXT, "invitation": _INVITATION_DOCUMENT},
    "anyOf": [{"required": ["code"]}, {"required": ["invitation"]}, _INVITATION_DOCUMENT],
}


_NOT_STORED = (b"cache-control", b"no-store")

_INVITED = "invited"  # a request takes one use, even if several handlers check it


class InvitationApi:
    def __init__(
        self,
        invitations: InvitationStore,
        registry: Registry,
        hosting: HostedDocuments,
        keys: HostedKeys,
        outgoing: Outgoing,
        base_url: str,
        authenticator: Authenticator,
    ) -> None:
        """`authenticator` reads tokens on open paths."""
        self._invitations = invitations
        self._registry = registry
        self._hosting = hosting
        self._keys = keys
        self._outgoing = outgoing
        self._base_url = base_url
        self.discreet_seconds = limits.FETCH_DISCREET_SECONDS
        self._authenticator = authenticator

    def routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/api/v1/invitations",
                operation="invite",
                handler=self.make,
                summary="Invite to one of your agents",
                body=BodySpec(schema=INVITE_SCHEMA),
                answers={201: InvitationView},
            ),
            Route(
                method="GET",
                path="/api/v1/invitations",
                operation="list_invitations",
                handler=self.list,
                summary="List the invitations to one of your agents; admin: all",
                parameters=(
                    ParameterSpec(name="agent", description="only invitations to this agent"),
                    limit_parameter(),
                ),
                answers={200: InvitationList},
            ),
            Route(
                method="DELETE",
                path="/api/v1/invitations/{id}",
                operation="revoke_invitation",
                handler=self.revoke,
                summary="Revoke an invitation",
                answers={204: BodySpec(description="revoked")},
            ),
            Route(
                method="POST",
                path="/api/v1/invitations:redeem",
                operation="redeem",
                handler=self.redeem,
                summary="Redeem an invitation: see the agent and pin its key",
                body=BodySpec(schema=REDEEM_SCHEMA),
                answers={200: RedeemedInvitation},
            ),
        ]

    # --- Create ----------------------------------------------------------------------------------

    async def make(self, call: RequestContext) -> AnyResponse:
        payload = await read_object(call.request)
        agent = payload.get("agent")
        if not isinstance(agent, str):
            raise InvalidDocument("The agent is missing.", path="$.agent", hint="Name one of your agents.")
        entry = owned_agent(self._registry, call.principal, agent)
        uses = parse_integer(payload, "uses", 1, 1, limits.INVITATION_USES)
        ttl = parse_integer(
            payload,
            "ttl_seconds",
            limits.INVITATION_TTL_SECONDS,
            limits.INVITATION_TTL_MIN_SECONDS,
            limits.INVITATION_TTL_MAX_SECONDS,
        )
        (registration,) = await self._registry.registrations((entry.id,)) or (None,)
        if registration is None:
            raise no_such_agent(agent)
        uri, well_known, pubkey = self._place(registration)
        by = call.principal.subject or ""
        held, code = await self._invitations.create(entry.id, uri, by, uses, ttl)
        invitation = self._signed(
            Invitation(code=code, agent=uri, well_known=well_known, pubkey=pubkey, expires=to_rfc3339(held.expires_at))
        )
        await self._note(call.principal, "invite", entry.id, "created", f"{held.id}, {uses} uses")
        answer = msgspec.structs.replace(held.view(self._registry.clock.now()), invitation=invitation.json())
        return json_response(
            answer, 201, headers=[_NOT_STORED, (b"location", f"/api/v1/invitations/{held.id}".encode())]
        )

    def _place(self, registration: Registration) -> tuple[str, str, str]:
        """Return the Agent URI, the address of the document and the key in it."""
        domain = registration.hosted
        hosted = self._hosting.get(registration, self._registry.clock.now(), "domain")
        if hosted.fingerprint is None or (domain is None and not hosted.is_received):
            raise InvalidDocument(
                "The agent has no key that the invitation could contain.",
                path="$.agent",
                hint="Host the agent under its domain (`waypost host DOMAIN AGENT`): the service then creates a key.",
            )
        if domain is None:
            place = f"{self._base_url}{WELL_KNOWN_PATH}?agent={quote(registration.id, safe=':')}"
            return declared_agent_uri(registration), place, hosted.fingerprint
        return f"{AGENT_SCHEME}{domain}", f"{self._hosting.origin(domain)}{WELL_KNOWN_PATH}", hosted.fingerprint

    def _signed(self, invitation: Invitation) -> Invitation:
        """Sign with the key that the invitation names, if this service holds it."""
        domain = invitation.agent.removeprefix(AGENT_SCHEME)
        key = self._keys.key_of(domain) if invitation.agent.startswith(AGENT_SCHEME) else None
        if key is None or key.public.fingerprint() != invitation.pubkey:
            return invitation
        return invitation.signed(key)

    # --- List and revoke -------------------------------------------------------------------------

    async def list(self, call: RequestContext) -> AnyResponse:
        agent, limit = call.request.param("agent"), read_limit(call.request)
        if agent is not None:
            found = await self._invitations.of(owned_agent(self._registry, call.principal, agent).id)
        else:
            found = [held for held in await self._invitations.all(10_000) if self._may(call.principal, held)]
        now = self._registry.clock.now()
        return json_response(
            InvitationList(invitations=tuple(held.view(now) for held in found[:limit])), headers=[_NOT_STORED]
        )

    async def revoke(self, call: RequestContext) -> AnyResponse:
        held = await self._invitations.get(call.id)
        if not self._may(call.principal, held):
            raise unknown_invitation_error(call.id)
        if held.revoked_at is None:
            await self._invitations.revoke(call.id)
            await self._note(call.principal, "revoke_invitation", held.record, "revoked", held.id)
        return Response(204)

    async def _note(self, principal: Principal, action: str, record: str, outcome: str, detail: str) -> None:
        """Write an audit entry: an invitation makes a private agent visible to somebody."""
        now = self._registry.clock.now()
        entry = audit_entry_by(principal, action, now=now, object=record, outcome=outcome, detail=detail)
        await self._registry.record(entry)

    def _may(self, principal: Principal, held: StoredInvitation) -> bool:
        """Allow the creator of the invitation, the current owner of the agent, and admin."""
        entry = self._registry.entries.find(held.record)
        owner = entry.owner if entry is not None else held.by
        return principal.is_admin or principal.subject in (owner, held.by)

    # --- Redeem ----------------------------------------------------------------------------------

    async def redeem(self, call: RequestContext) -> AnyResponse:
        """Read a code, or an invitation as the member `invitation` or as the whole body."""
        payload = await read_object(call.request)
        given, path = (payload, "$") if "invite" in payload else (payload.get("invitation"), "$.invitation")
        invitation = parse_invitation(given, path) if isinstance(given, dict) else None
        code = parse_code(payload.get("code") if invitation is None else invitation.code, "$.code")
        held = await self._invitations.find(code)
        if held is None and invitation is not None and not self._is_ours(invitation):
            return json_response(await self._elsewhere(call, invitation), headers=[_NOT_STORED])
        return json_response(await self._here(call, code, invitation), headers=[_NOT_STORED])

    def _is_ours(self, invitation: Invitation) -> bool:
        domain = invitation.agent.removeprefix(AGENT_SCHEME)
        return invitation.well_known.startswith(f"{self._base_url}/") or self._registry.hosted(domain) is not None

    async def _here(self, call: RequestContext, code: str, invitation: Invitation | None) -> RedeemedInvitation:
        subject = call.principal.subject
        held = await self._invitations.redeem(code, subject=subject)
        if held is None:
            raise invalid_invitation_error()
        try:
            found = await self._registry.registrations((held.record,))
            if not found:
                raise invalid_invitation_error()
            if subject is not None:
                await self._let_in(found[0], subject)
            document = parse_rendered(self._hosting.get(found[0], self._registry.clock.now(), "domain").body)
            if invitation is not None:
                check_invited_document(document, held.agent, invitation)
        except WaypostError:
            await self._invitations.release(held.id, subject)
            raise
        await self._note(call.principal, "redeem", held.record, "redeemed", held.id)
        return RedeemedInvitation(
            agent=held.agent,
            id=held.record,
            document=document,
            fingerprint=_fingerprint(document),
            shared=subject is not None,
        )

    async def _let_in(self, registration: Registration, subject: str) -> None:
        """Share the agent on behalf of the owner who created the invitation."""
        if subject == registration.owner or subject in registration.invitees:
            return
        owner = Principal(subject=registration.owner, scopes=frozenset((SCOPE_WRITE,)), via="invitation")
        await self._registry.share(owner, registration.id, add=(subject,))

    async def _elsewhere(self, call: RequestContext, invitation: Invitation) -> RedeemedInvitation:
        refuse_fetch_loops(call.request)
        require_scope(call.principal, SCOPE_WRITE)  # a fetch, with the cost of one
        followed = await self._followed(call.principal, invitation)
        is_kept = followed.is_from_domain or call.principal.is_admin
        if is_kept:
            pin = InvitationPin(fingerprint=invitation.pubkey, spki=followed.key.spki, by=call.principal.subject or "")
            await self._invitations.pin(invitation.agent, pin)
        return RedeemedInvitation(
            agent=invitation.agent,
            document=followed.document,
            fingerprint=invitation.pubkey,
            shared=False,
            pinned=is_kept,
        )

    async def _followed(self, principal: Principal, invitation: Invitation) -> InvitedDocument:
        """Denied, closed, missing and refused are indistinguishable, also by time (THREATS S1, S9)."""
        began = time.monotonic()
        try:
            return await fetch_invited_document(invitation, self._outgoing, self._registry.clock.now())
        except (AddressDenied, FetchFailed):
            if principal.is_admin:
                raise
        await asyncio.sleep(max(0.0, began + self.discreet_seconds - time.monotonic()))
        raise FetchFailed(
            "The agent's document could not be fetched.",
            path="$.invitation.invite.wellKnown",
            hint="Check that the invitation has uses left, and that the agent's server is running and public.",
            details={"reason": "unreachable"},
        )

    # --- Well-known document ---------------------------------------------------------------------

    async def invited(self, request: Request, registration: Registration) -> bool:
        """Whether a request may see a private agent: by its token, or by an invitation, of which it takes one use."""
        if _INVITED not in request.state:
            request.state[_INVITED] = str(await self._holds(request, registration))
        return request.state[_INVITED] == str(True)

    async def _holds(self, request: Request, registration: Registration) -> bool:
        scheme, _, credential = (request.header(b"authorization") or "").partition(" ")
        code = credential.strip() if scheme.lower() == SCHEME.lower() else request.param("invite")
        if code is not None:
            if request.method == "HEAD":  # HEAD takes no use
                held = await self._invitations.find(code)
                return held is not None and held.record == registration.id and held.used < held.uses
            return await self._invitations.redeem(code, registration.id) is not None
        if not scheme:
            return False
        try:
            return may_see(await self._authenticator.authenticate(request), registration.scopes)
        except Unauthorized:
            return False


def declared_agent_uri(registration: Registration) -> str:
    """The Agent URI in the document of an agent that is not hosted here."""
    source = registration.source("adp")
    return source.id if source is not None else registration.id


def _fingerprint(document: JsonObject) -> str | None:
    key = document.get("identity", {}).get("publicKey") or {}
    fingerprint: str | None = key.get("fingerprint")
    return fingerprint

"""`WS /agent/chat`: conversations with the service, with agents hosted here, and through it with agents that hold a line.

Whoever speaks proves itself by its hello, not by a token; a token that is sent along must hold, and lets one in whose key
nothing else tells (its subject is who asks). What a stranger may cost is bounded before it is known (W rows, THREATS §2.8).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from waypost import limits
from waypost.errors import (
    Forbidden,
    HandshakeTimeout,
    InvalidKey,
    RateLimited,
    Revoked,
    Unauthorized,
    Unavailable,
    UpgradeRequired,
    WaypostError,
    codes_of,
)
from waypost.meeting.conversation import Conversation, Ended, PeerFault
from waypost.meeting.correspondent import Correspondent
from waypost.meeting.invitations import Invitations
from waypost.meeting.link import LinkLost, Reread
from waypost.meeting.peers import NotedKeys, PeerKey, PeerKeys
from waypost.meeting.relay import Relay, RelayedLink
from waypost.model.json import JsonObject
from waypost.model.principal import SCOPE_READ
from waypost.server.agp_agents import SCHEME, OwnAgents
from waypost.server.agp_link import AsgiLink
from waypost.server.agp_visitor import Visitor, visitor_of
from waypost.server.asgi import AnyResponse, App, Receive, Request, Scope, Send
from waypost.server.auth import Authenticator
from waypost.server.hosts import Hosts, name_of
from waypost.server.metrics import Metrics
from waypost.server.origin import Origin
from waypost.server.rates import Buckets, network_of
from waypost.server.routes import Call, Route
from waypost.server.websocket import denial
from waypost.trust.keys import parse_ed25519_raw
from waypost.wire.agp import SUBPROTOCOL, Message, read_frame
from waypost.wire.agp_hello import Hello, find_hello

log = logging.getLogger("waypost.meeting")

PATH = "/agent/chat"
Refuse = Callable[[Request, Send, WaypostError], Awaitable[None]]


class SocketPaths:
    """The WebSockets of the service, by path."""

    def __init__(self, paths: dict[str, App]) -> None:
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._paths[scope["path"]](scope, receive, send)


class TokenKeys:
    """Whoever holds a token may be somebody whose key nothing tells: the one that it shows is its own then."""

    def __init__(self, others: PeerKeys, raw: bytes) -> None:
        self._others = others
        self._raw = raw

    async def key_of(self, agent: str) -> PeerKey | None:
        found = await self._others.key_of(agent)
        if found is not None:
            return found
        key = parse_ed25519_raw(self._raw)
        return PeerKey(agent=agent, fingerprint=key.fingerprint() or "", by="token", key=key)


class Conversations:
    """The ASGI application behind `/agent/chat`."""

    _authenticator: Authenticator
    _hosts: Hosts
    _origin: Origin
    _refuse: Refuse

    def __init__(
        self,
        agents: OwnAgents,
        metrics: Metrics,
        now: Callable[[], float],
        recheck_seconds: float = limits.SOCKET_RECHECK_SECONDS,
    ) -> None:
        self.agents = agents
        self.invitations: Invitations | None = None
        self.recheck_seconds = recheck_seconds
        self._metrics = metrics
        self._open = 0
        self._callers: set[Caller] = set()
        agents.on_revoked(self._revoked)
        self._strangers: Counter[str] = Counter()
        self._of_agent: Counter[str] = Counter()
        self._calls = Buckets(
            now, limits.AGP_HANDSHAKES_PER_MINUTE, what="calls of one address", hint="Keep one connection open."
        )

    def guard(self, authenticator: Authenticator, hosts: Hosts, origin: Origin, refuse: Refuse) -> None:
        """What says who may come, and in which words the others are told."""
        self._authenticator, self._hosts, self._origin, self._refuse = authenticator, hosts, origin, refuse

    def routes(self) -> list[Route]:
        """What a request that is no WebSocket is told."""
        return [
            Route(
                method="GET",
                path=PATH,
                operation="chat",
                handler=self._plain,
                summary="A conversation over a WebSocket (AGP, subprotocol adp-v1)",
                open=True,
            )
        ]

    async def _plain(self, call: Call) -> AnyResponse:
        raise UpgradeRequired(
            "This path is a WebSocket.",
            path="Upgrade",
            hint=f"Connect with version 13; the subprotocol is {SUBPROTOCOL}.",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request({**scope, "method": "GET"}, receive)
        await receive()  # the handshake
        place = network_of(self._origin.address(scope))
        try:
            visitor = await self._admitted(request, place)
        except WaypostError as error:
            await self._refuse(request, denial(send), error)
            return
        self._metrics.count("GET", PATH, 101)
        offered = SUBPROTOCOL in scope.get("subprotocols", ())
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if offered else None})
        await Caller(self, request, visitor, place, AsgiLink(receive, send)).run()

    async def _admitted(self, request: Request, place: str) -> Visitor:
        visitor = await visitor_of(request, self._authenticator, self.invitations)
        self._hosts.check(request, lambda domain: self.agents.is_hosted(domain, visitor))
        if self._open >= limits.AGP_SOCKETS:
            raise Unavailable("Too many conversations are open.", hint="Come back later.", retry_after=10)
        if self._strangers[place] >= limits.AGP_STRANGERS:
            raise RateLimited(
                f"{limits.AGP_STRANGERS} handshakes of this address are not over.",
                path="address",
                hint="Say hello as soon as you are connected.",
                retry_after=10,
            )
        self._calls.take(place)
        return visitor

    async def holds(self, request: Request) -> bool:
        """Whether the token of a connection still does (W9)."""
        try:
            await self._authenticator.principal(request)
        except Unauthorized:
            return False
        except WaypostError as error:  # who cannot be asked now is asked again
            log.debug("a token could not be checked again: %s", error)
        return True

    @property
    def count(self) -> int:
        """How many connections are open."""
        return self._open

    def _revoked(self, kind: str, name: str) -> None:
        """Whoever came by it goes at once (W9)."""
        for caller in [*self._callers]:
            caller.end_without(kind, name)

    def enter(self, caller: Caller, place: str) -> None:
        self._callers.add(caller)
        self._open += 1
        self._strangers[place] += 1

    def known(self, place: str) -> None:
        self._strangers[place] -= 1
        if self._strangers[place] <= 0:
            del self._strangers[place]

    def leave(self, caller: Caller) -> None:
        self._callers.discard(caller)
        self._open -= 1

    def seat(self, agent: str) -> None:
        """One more session of an agent that is known."""
        if self._of_agent[agent] >= limits.AGP_SESSIONS_OF_AGENT:
            raise RateLimited(
                f"{limits.AGP_SESSIONS_OF_AGENT} conversations with {agent} are open.",
                path="$.from",
                hint="Close some of them: one carries all messages.",
                retry_after=10,
            )
        self._of_agent[agent] += 1

    def unseat(self, agent: str) -> None:
        self._of_agent[agent] -= 1
        if self._of_agent[agent] <= 0:
            del self._of_agent[agent]


class Caller:
    """One connection, from its first frame to its end."""

    def __init__(
        self, conversations: Conversations, request: Request, visitor: Visitor, place: str, link: AsgiLink
    ) -> None:
        self._conversations = conversations
        self._agents = conversations.agents
        self._request = request
        self._visitor = visitor
        self._principal = visitor.principal
        self._place = place
        self._link = link
        self._is_known = False
        self._seat: str | None = None
        self._came_by: set[tuple[str, str]] = set()  # what must not be revoked while it is here
        self._ending: asyncio.Task[None] | None = None

    async def run(self) -> None:
        self._conversations.enter(self, self._place)
        checking = None if self._principal.is_anonymous else asyncio.create_task(self._recheck())
        try:
            await self._converse()
        except (LinkLost, Ended, PeerFault) as error:
            log.debug("a conversation ended: %s", error)
        except WaypostError as error:
            log.debug("a conversation was refused: %s", error)
            await self._link.close(codes_of(error).ws_close, error.message)
        finally:
            if checking is not None:
                checking.cancel()
            self._know()
            self._conversations.leave(self)
            if self._seat is not None:
                self._conversations.unseat(self._seat)
                self._agents.rights.pop(self._seat, None)

    async def _recheck(self) -> None:
        while True:
            await asyncio.sleep(self._conversations.recheck_seconds)
            if not await self._conversations.holds(self._request):
                break
        await self._link.close(codes_of(Unauthorized("")).ws_close, "the token does not hold any more")

    def end_without(self, kind: str, name: str) -> None:
        """End it where it came by what was revoked now."""
        if (kind, name) in self._came_by and self._ending is None:
            closing = self._link.close(codes_of(Revoked("")).ws_close, f"the {kind} was revoked")
            self._ending = asyncio.create_task(closing)

    def _noting(self, hello: Hello | None, peers: PeerKeys | None) -> PeerKeys:
        """Keys that are remembered as they are found: by which agent and which key it comes, the known and the shown one."""
        if hello is not None:
            self._came_by.add(("agent", hello.agent))
            if hello.raw is not None:
                with contextlib.suppress(InvalidKey):  # the session says what is wrong with it
                    self._came_by.add(("key", parse_ed25519_raw(hello.raw).key_id))
        return NotedKeys(peers or self._agents.peers, lambda key: self._came_by.add(("key", key.key_id)))

    def _know(self) -> None:
        if not self._is_known:
            self._is_known = True
            self._conversations.known(self._place)

    async def _converse(self) -> None:
        first = await self._first()
        try:
            document = read_frame(first)
            hello, to = _hello(document), self._addressed(document)
            is_invited = await self._invited(to, hello)
            relay = await self._relaying(to)
            correspondent = self._answering(to) if relay is None else None
        except WaypostError as error:
            await self._tell(first, error)
            raise
        peers = self._noting(hello, await self._peers(hello, is_invited))
        if relay is not None:
            await relay.take(self._link, first, to, peers=peers, known=self._know)
        elif correspondent is not None:
            await self._begin(correspondent, Reread(self._link, first), peers)

    async def _begin(self, correspondent: Correspondent, link: Reread, peers: PeerKeys | None) -> None:
        own = self._agents.own
        if correspondent.me.agent == own and self._agents.relay is not None:
            await self._meet(correspondent, RelayedLink(link, own), peers)
        else:
            await correspondent.converse(link, peers=peers, opened=self._opened)

    async def _relaying(self, to: str) -> Relay | None:
        """The relay, for an agent that holds a line, or did so lately."""
        relay = self._agents.relay
        entry = self._agents.entry_of(to)
        if relay is None or to == self._agents.own or (entry is not None and not self._visitor.sees(entry)):
            return None
        return relay if await relay.serves(to) else None

    async def _invited(self, to: str, hello: Hello | None) -> bool:
        """Whether it is an invitation that opens this agent; it takes a use of it."""
        entry, invitations = self._agents.entry_of(to), self._conversations.invitations
        if entry is None or hello is None or invitations is None:
            return False
        await self._visitor.redeem(invitations, entry, hello)
        return self._visitor.is_invited_to(entry)

    def _answering(self, to: str) -> Correspondent:
        found = self._agents.find(to, self._visitor)
        if found is None:
            raise Forbidden(
                f"{to[:80]} is not here.", path="$.to", hint=f"This is {self._agents.own}; ask the agent where it is."
            )
        return found

    async def _tell(self, first: str | bytes, error: WaypostError) -> None:
        """Why, before the connection is closed."""
        frame = self._agents.refusal(first, error)
        if frame is not None:
            await self._link.send(frame)

    async def _first(self) -> str | bytes:
        try:
            async with asyncio.timeout(limits.AGP_HANDSHAKE_SECONDS):
                return await self._link.receive()
        except TimeoutError:
            raise HandshakeTimeout(
                f"Nothing was said for {limits.AGP_HANDSHAKE_SECONDS:g} seconds.", path="$", hint="Say hello at once."
            ) from None

    def _addressed(self, document: JsonObject) -> str:
        """Whom it is for: as it says itself, within what the `Host` says."""
        host = name_of((self._request.header(b"host") or "").lower())
        selected = SCHEME + host if self._agents.is_hosted(host, self._visitor) else None
        to = document.get("to")
        if not isinstance(to, str):
            return selected or self._agents.own
        if selected is not None and to.lower() != selected:
            raise Forbidden(f"This host is {selected}.", path="$.to", hint="Call the agent at its own address.")
        return to.lower()

    async def _peers(self, hello: Hello | None, is_invited: bool) -> PeerKeys | None:
        """A token, or an invitation, lets in whose key is not known otherwise, by the key that it shows, or that its own
        record names."""
        has_token = not self._principal.is_anonymous and self._principal.has(SCOPE_READ)
        if hello is None or not (has_token or is_invited):
            return None
        raw = hello.raw or await self._agents.owned_key(hello.agent, self._principal)
        return None if raw is None else self._agents.unrevoked(TokenKeys(self._agents.peers, raw))

    async def _opened(self, conversation: Conversation) -> None:
        self._know()
        self._conversations.seat(conversation.peer)
        self._seat = conversation.peer
        if not self._principal.is_anonymous:
            self._agents.rights[conversation.peer] = self._principal

    async def _meet(self, correspondent: Correspondent, link: RelayedLink, peers: PeerKeys | None) -> None:
        """A conversation with the service itself. An agent may ask it to hold the line for what is for the agent."""
        relay = self._agents.relay
        attached: list[str] = []

        async def controlled(conversation: Conversation, action: JsonObject, message: Message) -> bool:
            if action["action"] != "attach" or relay is None or not conversation.is_open:
                return False
            self._check_attaching(conversation)
            attached.append(conversation.peer)
            self._link.hasten(limits.AGP_LINE_PER_SECOND, limits.AGP_LINE_BURST)
            await relay.attach(link, conversation)
            return True

        try:
            await correspondent.converse(link, peers=peers, opened=self._opened, on_control=controlled)
        finally:
            for agent in attached if relay is not None else ():
                await relay.detach(link, agent)  # type: ignore[union-attr]

    def _check_attaching(self, conversation: Conversation) -> None:
        """Only an agent with a record here, by a key that something binds to it."""
        peer = conversation.peer_key
        by = peer.by if peer is not None else ""
        if not conversation.session.is_verified or by == "token" or not self._agents.knows(conversation.peer):
            raise Forbidden(
                f"{conversation.peer} cannot hold a line here.",
                path="$",
                hint="Register the agent here, with the key that its domain, a pin or its document binds to it.",
            )


def _hello(document: JsonObject) -> Hello | None:
    """The hello of a first frame; what is wrong with it, the session tells."""
    try:
        return find_hello(document)
    except WaypostError:
        return None

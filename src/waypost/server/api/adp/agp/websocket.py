"""`WS /agent/chat`: AGP with the service, with hosted agents, and relayed to connected agents.

A peer authenticates with its hello, not with a token. A token that is sent must be valid, and admits a peer whose key is
not known otherwise. What an unauthenticated peer may consume is bounded (W rows, THREATS §2.8).

One process holds all conversations of a service, so that a connected agent is reachable whichever process accepted the
call. Followers forward text frames to the leader, which validates them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Origin, Subprotocol

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
    error_codes,
)
from waypost.messaging.connection import AgpConnection, LinkLost, PeerClosed, PeerError, PushbackLink
from waypost.messaging.endpoint import AgpEndpoint
from waypost.messaging.invitations import InvitationStore
from waypost.messaging.peers import ObservedKeys, PeerIdentity, PeerKeySource
from waypost.messaging.relay import AttachedLink, Relay
from waypost.model.json import JsonObject
from waypost.model.principal import SCOPE_READ
from waypost.protocols.adp.agp.hello import Hello, find_hello
from waypost.protocols.adp.agp.messages import SUBPROTOCOL, AgpMessage, read_frame
from waypost.rate_limit import TokenBucket
from waypost.server.api.adp.agp.agents import AGENT_URI_PREFIX, AgpAgents, AgpCredentials, read_credentials
from waypost.server.api.adp.agp.tunnel import NODE_HEADER, PASSED_HEADERS, TRY_AGAIN, ConversationTunnel
from waypost.server.auth.authenticator import Authenticator
from waypost.server.auth.callers import CallerRateLimiter, TrustedHosts, TrustedProxies, rate_limit_key
from waypost.server.http.app import RefuseUpgrade, deny_upgrade
from waypost.server.http.asgi import AnyResponse, Receive, Request, Scope, Send
from waypost.server.http.follower import ORIGIN_HEADER, origin_header
from waypost.server.http.metrics import Metrics
from waypost.server.http.routing import RequestContext, Route
from waypost.trust.keys.public_key import parse_ed25519_raw

_REASON_BYTES = 120


class AsgiLink:
    def __init__(
        self,
        receive: Receive,
        send: Send,
        *,
        per_second: float = limits.AGP_MESSAGES_PER_SECOND,
        burst: float = limits.AGP_MESSAGES_BURST,
    ) -> None:
        self._receive = receive
        self._send = send
        self._bucket = TokenBucket(per_second, burst)
        self._is_closed = False

    def set_rate(self, per_second: float, burst: float) -> None:
        """Use another rate, for a peer that talks to many."""
        self._bucket = TokenBucket(per_second, burst)

    async def receive(self) -> str | bytes:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._is_closed = True
            raise LinkLost(message.get("code", 1006), message.get("reason") or "")
        if not self._bucket.take(asyncio.get_running_loop().time()):
            raise RateLimited(
                f"More than {self._bucket.per_second:g} messages per second.",
                path="$",
                hint="Slow down and reconnect later.",
                retry_after=5,
            )
        text = message.get("text")
        return str(text) if text is not None else bytes(message["bytes"])

    async def send(self, frame: str) -> None:
        if self._is_closed:
            raise LinkLost
        try:
            await self._send({"type": "websocket.send", "text": frame})
        except OSError:  # uvicorn's message for a closed connection
            self._is_closed = True
            raise LinkLost from None

    async def close(self, code: int, reason: str) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        text = reason.encode()[:_REASON_BYTES].decode(errors="ignore")
        try:
            await self._send({"type": "websocket.close", "code": code, "reason": text})
        except OSError:
            return


log = logging.getLogger("waypost.messaging")

CHAT_PATH = "/agent/chat"


class PresentedKeys:
    """A token holder whose key is not known otherwise: accept the key that it presents."""

    def __init__(self, others: PeerKeySource, raw: bytes) -> None:
        self._others = others
        self._raw = raw

    async def key_of(self, agent: str) -> PeerIdentity | None:
        found = await self._others.key_of(agent)
        if found is not None:
            return found
        key = parse_ed25519_raw(self._raw)
        return PeerIdentity(agent=agent, fingerprint=key.fingerprint() or "", by="token", key=key)


async def _require_upgrade(call: RequestContext) -> AnyResponse:
    raise UpgradeRequired(
        "This path accepts WebSocket connections only.",
        path="Upgrade",
        hint=f"Connect with WebSocket version 13 and the subprotocol {SUBPROTOCOL}.",
    )


# For an HTTP request that is not a WebSocket upgrade.
CHAT_ROUTE: Final = Route(
    method="GET",
    path=CHAT_PATH,
    operation="chat",
    handler=_require_upgrade,
    summary="Talk over a WebSocket (AGP, subprotocol adp-v1)",
    open=True,
)


class AgpWebSocketApp:
    """The ASGI application behind `/agent/chat`. `refuse` answers a handshake that is denied."""

    def __init__(
        self,
        agents: AgpAgents,
        invitations: InvitationStore,
        metrics: Metrics,
        now: Callable[[], float],
        authenticator: Authenticator,
        hosts: TrustedHosts,
        origin: TrustedProxies,
        refuse: RefuseUpgrade,
        recheck_seconds: float = limits.SOCKET_RECHECK_SECONDS,
        *,
        tunnel: ConversationTunnel | None = None,
    ) -> None:
        """`tunnel`: to the other nodes of a cluster."""
        self.tunnel = tunnel
        self.agents = agents
        self.invitations = invitations
        self.recheck_seconds = recheck_seconds
        self._metrics = metrics
        self._authenticator = authenticator
        self._hosts = hosts
        self._origin = origin
        self._refuse = refuse
        self._open = 0
        self._callers: set[AgpSocketSession] = set()
        agents.on_revoked(self._revoked)
        metrics.add_gauge("conversations", "Open connections of AGP.", lambda: self._open)
        metrics.add_gauge("held_lines", "Agents that hold a line here.", lambda: len(agents.lines))
        self._strangers: Counter[str] = Counter()
        self._of_agent: Counter[str] = Counter()
        self._calls = CallerRateLimiter(
            now, limits.AGP_HANDSHAKES_PER_MINUTE, what="connections of one address", hint="Keep one connection open."
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.tunnel is not None:
            scope = self.tunnel.accept(scope)
        request = Request({**scope, "method": "GET"}, receive)
        await receive()  # the handshake
        place = rate_limit_key(self._origin.client_address(scope))
        try:
            visitor = await self._admitted(request, place)
        except WaypostError as error:
            await self._refuse(request, deny_upgrade(send), error)
            return
        self._metrics.observe("GET", CHAT_PATH, 101, request.elapsed_seconds())
        offered = SUBPROTOCOL in scope.get("subprotocols", ())
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if offered else None})
        await AgpSocketSession(self, request, visitor, place, AsgiLink(receive, send)).run()

    async def _admitted(self, request: Request, place: str) -> AgpCredentials:
        visitor = await read_credentials(request, self._authenticator, self.invitations)
        self._hosts.check_host(request, lambda domain: self.agents.is_hosted(domain, visitor))
        self._hosts.check_origin(request)
        if self._open >= limits.AGP_SOCKETS:
            raise Unavailable("Too many conversations are open.", hint="Try again later.", retry_after=10)
        if self._strangers[place] >= limits.AGP_PENDING_HANDSHAKES:
            raise RateLimited(
                f"{limits.AGP_PENDING_HANDSHAKES} handshakes of this address are pending.",
                path="address",
                hint="Send the hello right after connecting.",
                retry_after=10,
            )
        self._calls.take(place)
        return visitor

    def client_address(self, request: Request) -> str:
        return self._origin.client_address(request.scope)

    async def holds(self, request: Request) -> bool:
        """Whether the token of a connection is still valid (W9)."""
        try:
            await self._authenticator.authenticate(request)
        except Unauthorized:
            return False
        except WaypostError as error:  # the issuer is unreachable: check again later
            log.debug("cannot recheck a token: %s", error)
        return True

    def _revoked(self, kind: str, name: str) -> None:
        """Close the connections that depend on a revoked credential (W9)."""
        for caller in [*self._callers]:
            caller.close_if_revoked(kind, name)

    def enter(self, caller: AgpSocketSession, place: str) -> None:
        self._callers.add(caller)
        self._open += 1
        self._strangers[place] += 1

    def known(self, place: str) -> None:
        self._strangers[place] -= 1
        if self._strangers[place] <= 0:
            del self._strangers[place]

    def leave(self, caller: AgpSocketSession) -> None:
        self._callers.discard(caller)
        self._open -= 1

    def reserve_slot(self, agent: str) -> None:
        """Count one more session of an authenticated agent."""
        if self._of_agent[agent] >= limits.AGP_SESSIONS_PER_AGENT:
            raise RateLimited(
                f"{limits.AGP_SESSIONS_PER_AGENT} conversations with {agent} are open.",
                path="$.from",
                hint="Close some of them: one connection carries all messages.",
                retry_after=10,
            )
        self._of_agent[agent] += 1

    def release_slot(self, agent: str) -> None:
        self._of_agent[agent] -= 1
        if self._of_agent[agent] <= 0:
            del self._of_agent[agent]


class AgpSocketSession:
    """One connection, from its first frame to its close."""

    def __init__(
        self, conversations: AgpWebSocketApp, request: Request, visitor: AgpCredentials, place: str, link: AsgiLink
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
        self._came_by: set[tuple[str, str]] = set()  # closed when one of these is revoked
        self._ending: asyncio.Task[None] | None = None

    async def run(self) -> None:
        self._conversations.enter(self, self._place)
        checking = None if self._principal.is_anonymous else asyncio.create_task(self._recheck())
        try:
            await self._converse()
        except (LinkLost, PeerClosed, PeerError) as error:
            log.debug("conversation ended: %s", error)
        except WaypostError as error:
            log.debug("conversation refused: %s", error)
            await self._link.close(error_codes(error).ws_close, error.message)
        finally:
            if checking is not None:
                checking.cancel()
            self._know()
            self._conversations.leave(self)
            if self._seat is not None:
                self._conversations.release_slot(self._seat)
                self._agents.rights.pop(self._seat, None)

    async def _recheck(self) -> None:
        while True:
            await asyncio.sleep(self._conversations.recheck_seconds)
            if not await self._conversations.holds(self._request):
                break
        await self._link.close(error_codes(Unauthorized("")).ws_close, "the token is no longer valid")

    def close_if_revoked(self, kind: str, name: str) -> None:
        """Close the connection if it depends on what was revoked."""
        if (kind, name) in self._came_by and self._ending is None:
            closing = self._link.close(error_codes(Revoked("")).ws_close, f"the {kind} was revoked")
            self._ending = asyncio.create_task(closing)

    def _noting(self, hello: Hello | None, peers: PeerKeySource | None) -> PeerKeySource:
        """Look up and record the peer's agent id and its keys, the known one and the presented one."""
        if hello is not None:
            self._came_by.add(("agent", hello.agent))
            if hello.raw is not None:
                with contextlib.suppress(InvalidKey):  # the session reports the error
                    self._came_by.add(("key", parse_ed25519_raw(hello.raw).key_id))
        return ObservedKeys(peers or self._agents.peers, lambda key: self._came_by.add(("key", key.key_id)))

    def _know(self) -> None:
        if not self._is_known:
            self._is_known = True
            self._conversations.known(self._place)

    async def _converse(self) -> None:
        first = await self._first()
        try:
            document = read_frame(first)
            hello, to = _find_hello(document), self._addressed(document)
            is_invited = await self._invited(to, hello)
            relay = await self._relaying(to)
            correspondent = self._answering(to) if relay is None else None
        except WaypostError as error:
            await self._tell(first, error)
            raise
        peers = self._noting(hello, await self._peers(hello, is_invited))
        if relay is not None and await self._pass_on(relay, to, first):
            return
        if relay is not None:
            await relay.relay(self._link, first, to, peers=peers, on_authenticated=self._know)
        elif correspondent is not None:
            await self._begin(correspondent, PushbackLink(self._link, first), peers)

    async def _begin(self, correspondent: AgpEndpoint, link: PushbackLink, peers: PeerKeySource | None) -> None:
        own = self._agents.own
        if correspondent.me.agent == own and self._agents.relay is not None:
            await self._meet(correspondent, AttachedLink(link, own), peers)
        else:
            await correspondent.run_connection(link, peers=peers, opened=self._opened)

    async def _pass_on(self, relay: Relay, to: str, first: str | bytes) -> bool:
        """Whether the conversation was led by another node, which holds the line of the agent."""
        tunnel = self._conversations.tunnel
        if tunnel is None or tunnel.is_tunnelled(self._request) or isinstance(first, bytes):
            return False
        node = await relay.find_node(to)
        address = self._conversations.client_address(self._request)
        return node is not None and await tunnel.run(node, self._request, address, first, self._link, self._know)

    async def _relaying(self, to: str) -> Relay | None:
        """The relay, for an agent that is or recently was connected."""
        relay = self._agents.relay
        entry = self._agents.entry_of(to)
        if relay is None or to == self._agents.own or (entry is not None and not self._visitor.sees(entry)):
            return None
        return relay if await relay.serves(to) else None

    async def _invited(self, to: str, hello: Hello | None) -> bool:
        """Whether the invitation opens this agent; takes one use of it."""
        entry, invitations = self._agents.entry_of(to), self._conversations.invitations
        if entry is None or hello is None:
            return False
        await self._visitor.redeem(invitations, entry, hello)
        return self._visitor.is_invited_to(entry)

    def _answering(self, to: str) -> AgpEndpoint:
        found = self._agents.find(to, self._visitor)
        if found is None:
            raise Forbidden(
                f"{to[:80]} is not served here.",
                path="$.to",
                hint=f"This is {self._agents.own}; resolve the agent's own address.",
            )
        return found

    async def _tell(self, first: str | bytes, error: WaypostError) -> None:
        """Send the reason before closing the connection."""
        frame = self._agents.refusal(first, error)
        if frame is not None:
            await self._link.send(frame)

    async def _first(self) -> str | bytes:
        try:
            async with asyncio.timeout(limits.AGP_HANDSHAKE_SECONDS):
                return await self._link.receive()
        except TimeoutError:
            raise HandshakeTimeout(
                f"No hello within {limits.AGP_HANDSHAKE_SECONDS:g} seconds.",
                path="$",
                hint="Send the hello right after connecting.",
            ) from None

    def _addressed(self, document: JsonObject) -> str:
        """The target agent: as the hello says, within what `Host` selects."""
        host = self._request.host_name
        selected = AGENT_URI_PREFIX + host if self._agents.is_hosted(host, self._visitor) else None
        to = document.get("to")
        if not isinstance(to, str):
            return selected or self._agents.own
        if selected is not None and to.lower() != selected:
            raise Forbidden(
                f"This host serves {selected}.", path="$.to", hint="Connect to the agent at its own address."
            )
        return to.lower()

    async def _peers(self, hello: Hello | None, is_invited: bool) -> PeerKeySource | None:
        """A token or invitation admits a peer whose key is not known otherwise, with the key that it presents or that its own
        record names."""
        has_token = not self._principal.is_anonymous and self._principal.has(SCOPE_READ)
        if hello is None or not (has_token or is_invited):
            return None
        raw = hello.raw or await self._agents.owned_key(hello.agent, self._principal)
        return None if raw is None else self._agents.unrevoked(PresentedKeys(self._agents.peers, raw))

    async def _opened(self, conversation: AgpConnection) -> None:
        self._know()
        self._conversations.reserve_slot(conversation.peer)
        self._seat = conversation.peer
        if not self._principal.is_anonymous:
            self._agents.rights[conversation.peer] = self._principal

    async def _meet(self, correspondent: AgpEndpoint, link: AttachedLink, peers: PeerKeySource | None) -> None:
        """A conversation with the service itself. The peer may ask to stay connected to the relay."""
        relay = self._agents.relay
        attached: list[str] = []

        async def controlled(conversation: AgpConnection, action: JsonObject, message: AgpMessage) -> bool:
            if action["action"] != "attach" or relay is None or not conversation.is_open:
                return False
            self._check_attaching(conversation)
            attached.append(conversation.peer)
            self._link.set_rate(limits.AGP_LINE_PER_SECOND, limits.AGP_LINE_BURST)
            await relay.attach(link, conversation)
            return True

        try:
            await correspondent.run_connection(link, peers=peers, opened=self._opened, on_control=controlled)
        finally:
            for agent in attached if relay is not None else ():
                await relay.detach(link, agent)  # type: ignore[union-attr]

    def _check_attaching(self, conversation: AgpConnection) -> None:
        """Accept only an agent with a record here whose key is bound to it."""
        peer = conversation.peer_key
        by = peer.by if peer is not None else ""
        if not conversation.session.is_verified or by == "token" or not self._agents.knows(conversation.peer):
            raise Forbidden(
                f"{conversation.peer} cannot be relayed here.",
                path="$",
                hint="Register the agent here, with the key that its domain, a pin or its document binds to it.",
            )


def _find_hello(document: JsonObject) -> Hello | None:
    """Parse the hello of a first frame; the session reports errors."""
    try:
        return find_hello(document)
    except WaypostError:
        return None


_FORWARDED_HEADERS = (*PASSED_HEADERS, NODE_HEADER)


class AgpProxy:
    """`/agent/chat` in a follower: forwards frames to the leader's socket at `path`."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # the handshake
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        offered = SUBPROTOCOL in scope.get("subprotocols", ())
        passed = [(name.decode(), headers[name]) for name in _FORWARDED_HEADERS if name in headers]
        passed.append((ORIGIN_HEADER.decode(), origin_header(scope).decode("latin-1")))
        origin = headers.get(b"origin")
        try:
            async with unix_connect(
                self._path,
                uri=f"ws://{headers.get(b'host', 'localhost')}{scope['path']}{_query(scope)}",
                subprotocols=[Subprotocol(SUBPROTOCOL)] if offered else None,
                additional_headers=passed,
                origin=None if origin is None else Origin(origin),
                compression=None,
                max_size=limits.AGP_FRAME_BYTES,
                open_timeout=limits.SOCKET_OPEN_SECONDS,
                ping_interval=None,  # each side sends its own pings
            ) as other:
                await send({"type": "websocket.accept", "subprotocol": other.subprotocol})
                await _pump(other, receive, send)
        except InvalidStatus as error:
            await _refuse(error, send)
        except (OSError, TimeoutError, WebSocketException):
            with suppress(OSError):
                await send({"type": "websocket.close", "code": TRY_AGAIN, "reason": "try again later"})


def _query(scope: Scope) -> str:
    """The path with its query, which may contain an invitation."""
    query = scope.get("query_string", b"").decode("latin-1")
    return f"?{query}" if query else ""


async def _pump(other: ClientConnection, receive: Receive, send: Send) -> None:
    going = asyncio.create_task(_pump_outbound(other, receive))
    try:
        async for frame in other:
            await send({"type": "websocket.send", "text" if isinstance(frame, str) else "bytes": frame})
    except ConnectionClosed:
        pass
    except OSError:  # the peer disconnected
        return
    finally:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
    with suppress(OSError):
        await send({"type": "websocket.close", "code": _code(other), "reason": other.close_reason or ""})


async def _pump_outbound(other: ClientConnection, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            await other.close()
            return
        frame = message.get("text")
        await other.send(frame if frame is not None else message["bytes"])


def _code(other: ClientConnection) -> int:
    """Map reserved codes, which no frame may carry and which mean that the leader is gone."""
    code = other.close_code
    return TRY_AGAIN if code is None or code in (1005, 1006, 1015) else code


async def _refuse(error: InvalidStatus, send: Send) -> None:
    """Pass on the leader's refusal."""
    headers = [
        (name.lower().encode(), value.encode())
        for name, value in error.response.headers.raw_items()
        if name.lower() not in ("connection", "content-length", "date", "transfer-encoding")
    ]
    start = {"type": "websocket.http.response.start", "status": error.response.status_code, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": error.response.body or b""})

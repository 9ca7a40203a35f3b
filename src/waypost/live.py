"""`LiveAgent`: an agent in a program of one's own that others can talk to, and that talks to others.

The parts of a conversation are put together here for a program, as `app/` does it for the service.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from waypost import limits
from waypost.client.aio.client import Client
from waypost.client.chat import ChatHandler, ChatMessage, HandlerReplies, LateReplyHandler, Reply, chat_message
from waypost.client.contacts import Contact, Contacts, DomainContacts, RegistryContacts, StaticContacts
from waypost.client.identity import read_key
from waypost.client.peer_connection import PeerConnection, PeerConnectionEvent, WebSocketLink, tls13_context
from waypost.client.registry_transport import http_client
from waypost.client.tasks import CallbackHandler as PostedHandler
from waypost.client.tasks import CallbackReceiver
from waypost.domains.resolver import DomainResolver, ResolveOptions
from waypost.errors import (
    ConfigurationError,
    Forbidden,
    InvalidKey,
    InvalidRequest,
    Unavailable,
    UnknownPeer,
    WaypostError,
)
from waypost.messaging.connection import AgpConnection, AgpLink, AgpTimeouts, LinkLost, PeerClosed, PeerError
from waypost.messaging.endpoint import AgpEndpoint, SystemRandomness
from waypost.messaging.message_store import AgentMessage
from waypost.messaging.peers import PeerIdentity
from waypost.messaging.relay import RelayClient, attach_to_relay
from waypost.model.json import JsonObject
from waypost.model.verdict import Verdict
from waypost.net.address_policy import AddressPolicy
from waypost.net.clock import SystemClock
from waypost.net.outbound import OutboundClient, OutboundOptions
from waypost.protocols.adp.agp.hello import AgpIdentity
from waypost.protocols.adp.agp.messages import SUBPROTOCOL, AgpMessage, MessageContent, parse_agent, verify
from waypost.registry.ports import KeyValueStore
from waypost.settings import is_loopback, load_connection_settings
from waypost.stores.memory import MemoryKeyValueStore
from waypost.stores.sqlite.key_value import SqliteKeyValueStore
from waypost.trust.keys.private_key import PrivateKey

CHAT_PATH = "/agent/chat"


class LiveAgent:
    """An agent that converses (AGP). Use as `async with`.

    >>> agent = LiveAgent("agent:alice.example.com", key=Path("alice.pem"))  # doctest: +SKIP
    >>> @agent.on_chat                                                       # doctest: +SKIP
    ... async def answer(message):
    ...     return f"You said {message.text}."
    """

    def __init__(
        self,
        agent: str,
        key: PrivateKey | Path,
        *,
        data: Path | None = None,
        registry: str | None = None,
        token: str | None = None,
        contacts: Sequence[Contacts] = (),
        resolver: str | OutboundOptions | None = None,
        keeper: KeyValueStore | None = None,
        tls: ssl.SSLContext | None = None,
        ca: Path | None = None,
        timing: AgpTimeouts | None = None,
        news: Callable[[PeerConnectionEvent], None] | None = None,
    ) -> None:
        """`data`: a folder in which letters outlive this process. `registry`: the address of a service that knows others.

        `resolver`: find others by the DNS of their domains, asked as the setting `resolver` says: "system", "host:port",
        "tls://…", "https://…". With more to say of the way out (trust anchors, allowed networks), it is an `OutgoingOptions`.
        """
        self.agent = parse_agent(agent, "agent")
        self.key = key if isinstance(key, PrivateKey) else read_key(key)
        if self.key.public.fingerprint() is None:
            raise InvalidKey("ADP takes Ed25519 keys only.", path="key", hint="Make one with `waypost keys new`.")
        self._keeper = keeper or (SqliteKeyValueStore(data) if data is not None else MemoryKeyValueStore())
        self._owns_keeper = keeper is None
        self._given = StaticContacts()
        self._others = tuple(contacts) if resolver is None else (*contacts, _domain_contacts(resolver, ca))
        self._registry = registry
        self._token = token
        self._tls = tls or (tls13_context(ca) if ca is not None else None)
        self._ca = ca
        self._timing = timing
        self._news = news
        self._client: Client | None = None
        self._http: Any = None
        self._lines: dict[str, PeerConnection] = {}
        self._servers: list[Server] = []
        self._strangers: Counter[str] = Counter()
        self._on_chat: ChatHandler | None = None
        self._on_task: ChatHandler | None = None
        self._on_reply: LateReplyHandler | None = None
        self._me: AgpEndpoint | None = None

    # --- Handlers --------------------------------------------------------------------------------

    def on_chat(self, handler: ChatHandler) -> ChatHandler:
        """What is answered to a chat: a text, or parts of one as an async generator; None says nothing."""
        self._on_chat = handler
        return handler

    def on_task(self, handler: ChatHandler) -> ChatHandler:
        """The same for messages of the type `task`."""
        self._on_task = handler
        return handler

    def on_reply(self, handler: LateReplyHandler) -> LateReplyHandler:
        """Answers that nobody waits for any more, after a restart or a time-out."""
        self._on_reply = handler
        return handler

    def callbacks(self, handler: PostedHandler) -> CallbackReceiver:
        """An ASGI application for the address that tasks and swarms are given as `callback`: what was signed for this agent
        comes to `handler`, once. Use it while the agent is live."""
        return CallbackReceiver(self.agent, self, self._keeper, handler)

    # --- Life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._keeper.open()
        me = AgpIdentity(
            agent=self.agent,
            key=self.key,
            fingerprint=self.key.public.fingerprint() or "",
            raw=self.key.public.raw or b"",
        )
        self._me = AgpEndpoint(
            me,
            self._keeper,
            self,
            SystemClock(),
            SystemRandomness(),
            chat=self._chat,
            task=self._task if self._on_task is not None else None,
            answered=self._late,
            timing=self._timing,
        )
        await self._me.recover()
        for peer in await self._me.mail.peers():
            self._line(peer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in list(self._lines.values()):
            await line.close()
        for server in self._servers:
            server.close()
            await server.wait_closed()
        if self._me is not None:
            await self._me.close()
        if self._client is not None:
            await self._client.__aexit__(kind, error, trace)
            await self._http.aclose()
        if self._owns_keeper:
            await self._keeper.close()

    @property
    def me(self) -> AgpEndpoint:
        if self._me is None:
            raise InvalidRequest("The agent is not live.", path="agent", hint="Use it in `async with`.")
        return self._me

    # --- Talking ---------------------------------------------------------------------------------

    def knows(
        self, agent: str, *, url: str | None = None, fingerprint: str | None = None, token: str | None = None
    ) -> None:
        """Tell where an agent is and which key it has, where nothing else says so."""
        self._given.add(parse_agent(agent, "agent"), url=url, fingerprint=fingerprint, token=token)

    async def talk(self, to: str) -> Verdict | None:
        """A line to an agent, which stays and is opened again when it is lost. What is known of who is there."""
        return self.verdict(await self._reached(to))

    async def _reached(self, to: str) -> str:
        if to in self.me.conversations:
            return to
        peer = parse_agent(to, "to")
        if peer not in self.me.conversations:
            await self._line(peer).wait()
        return peer

    async def chat(self, to: str, text: str, *, timeout: float = limits.AGP_ANSWER_SECONDS) -> Reply:  # noqa: ASYNC109
        """Say something, and wait for the answer."""
        peer = await self._reached(to)
        letters = await self.me.answer(self.me.letter(peer, MessageContent(text=text)), seconds=timeout)
        parts = tuple(chat_message(letter) for letter in letters)
        return Reply(text="".join(part.text for part in parts), parts=parts, verdict=self.verdict(peer))

    async def stream(
        self,
        to: str,
        text: str,
        *,
        timeout: float = limits.AGP_ANSWER_SECONDS,  # noqa: ASYNC109
    ) -> AsyncIterator[ChatMessage]:
        """Say something, and take the answer part by part."""
        peer = await self._reached(to)
        async for letter in self.me.ask(self.me.letter(peer, MessageContent(text=text)), seconds=timeout):
            yield chat_message(letter)

    async def send(self, to: str, text: str, *, kind: str = "chat") -> str:
        """Leave something; it is delivered once, now or when the other side can be reached. Its id."""
        me = self.me
        peer = to if to in me.conversations else parse_agent(to, "to")
        letter = me.letter(peer, MessageContent(text=text), kind=kind)
        await me.send(letter)
        if peer not in me.conversations:
            self._line(peer)
        return letter.id

    def verdict(self, peer: str) -> Verdict | None:
        conversation = self.me.conversations.get(peer)
        return None if conversation is None else conversation.verdict()

    def _line(self, peer: str) -> PeerConnection:
        line = self._lines.get(peer)
        if line is None or line.is_over:
            line = self._lines[peer] = PeerConnection(
                self.me, peer, self.contact, self, tls=self._tls, on_event=self._news, on_control=self._controlled
            )
        return line

    async def _controlled(self, conversation: AgpConnection, action: JsonObject, message: AgpMessage) -> bool:
        """A relay says that the other side is away and that it keeps messages: if it is one that we know, it gets them."""
        if action["action"] != "mailbox" or conversation.is_open:
            return False
        relay = await self.key_of(message.sender)
        if relay is None or relay.key is None or not verify(relay.key, message.signature, message.signing_input):
            return False
        count = await conversation.leave()
        if self._news is not None:
            seconds = action.get("seconds")
            reason = f"it is away; {message.sender} keeps {count} messages for {seconds} seconds"
            self._news(PeerConnectionEvent(peer=conversation.peer, event="kept", reason=reason))
        return True

    # --- Being talked to -------------------------------------------------------------------------

    async def listen(self, host: str = "127.0.0.1", port: int = 0, *, tls: ssl.SSLContext | None = None) -> str:
        """Take calls here. The address to be published as `endpoints.chat`."""
        if tls is None and not is_loopback(host):
            raise ConfigurationError(
                "Conversations go over TLS.", path="tls", hint="Give a certificate, or listen on 127.0.0.1."
            )
        server = await serve(
            self._taken,
            host,
            port,
            ssl=tls,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            max_size=limits.AGP_FRAME_BYTES,
            ping_interval=limits.SOCKET_PING_SECONDS,
            ping_timeout=limits.SOCKET_SILENCE_SECONDS - limits.SOCKET_PING_SECONDS,
            close_timeout=limits.SOCKET_CLOSE_SECONDS,
            select_subprotocol=_subprotocol,
        )
        self._servers.append(server)
        bound = next(iter(server.sockets)).getsockname()[1]
        return f"{'ws' if tls is None else 'wss'}://{f'[{host}]' if ':' in host else host}:{bound}{CHAT_PATH}"

    async def attach(self, relay: str | None = None) -> str:
        """Hold a line to a relay, so that others reach this agent through it: the registry's, if none is named. The address
        to be published as `endpoints.chat`."""
        peer = parse_agent(relay, "relay") if relay is not None else await self._own_registry()
        held: list[RelayClient] = []
        attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wrap(link: AgpLink) -> AgpLink:
            held[:] = [RelayClient(link, self.me, peer)]
            return held[0]

        async def controlled(conversation: AgpConnection, action: JsonObject, message: AgpMessage) -> bool:
            if action["action"] == "attached" and not attached.done():
                attached.set_result(None)
            return await held[0].controlled(conversation, action, message)

        line = self._lines[f"relay {peer}"] = PeerConnection(
            self.me,
            peer,
            self.contact,
            self,
            tls=self._tls,
            on_event=self._news,
            wrap=wrap,
            on_open=attach_to_relay,
            on_control=controlled,
        )
        await line.wait()
        await asyncio.wait(
            (attached, line.task), timeout=limits.AGP_HANDSHAKE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if not attached.done():
            raise Forbidden(f"{peer} does not hold a line for {self.agent}.", path="relay", hint=line.reason)
        return (await self.contact(peer)).url or ""

    async def _own_registry(self) -> str:
        for source in self._registry_contacts():
            return (await source.registry_contact()).agent
        raise InvalidRequest(
            "No registry is named.", path="registry", hint="Give LiveAgent a registry, or name a relay."
        )

    async def _taken(self, connection: ServerConnection) -> None:
        address = str((connection.remote_address or ("",))[0])
        if self._strangers[address] >= limits.AGP_PENDING_HANDSHAKES:
            await connection.close(4429, "too many handshakes of this address at once")
            return
        self._strangers[address] += 1
        is_stranger = True

        async def opened(_: AgpConnection) -> None:
            nonlocal is_stranger
            is_stranger = False
            self._strangers[address] -= 1

        try:
            await self.me.converse(WebSocketLink(connection), opened=opened)
        except (LinkLost, PeerClosed, PeerError, WaypostError):
            return
        finally:
            if is_stranger:
                self._strangers[address] -= 1

    async def key_of(self, agent: str) -> PeerIdentity | None:
        """What is known of the key of another agent (a `PeerKeys`)."""
        contact = await self._find(agent)
        return None if contact is None else contact.key

    async def contact(self, agent: str) -> Contact:
        found = await self._find(agent)
        if found is None:
            raise UnknownPeer(
                f"Nothing is known of {agent}.",
                path="to",
                hint="Name a registry that knows it, or give its address and its fingerprint.",
            )
        return found

    async def _find(self, agent: str) -> Contact | None:
        """Where it is and which key it has, each from the first that knows."""
        found = await self._given.find(agent)
        failure: WaypostError | None = None
        for source in (*self._others, *self._registry_contacts()):
            if found is not None and found.key is not None and found.url is not None:
                break
            try:
                found = _merge_contacts(found, await source.find(agent))
            except Unavailable as error:  # others may know it
                failure = failure or error
        if found is None and failure is not None:
            raise failure
        return self._with_token(found)

    def _with_token(self, found: Contact | None) -> Contact | None:
        """The token is for the registry, by whatever name it is called, and for nobody else."""
        if found is None or found.url is None or found.token is not None or self._registry is None:
            return found
        if urlsplit(found.url).netloc != urlsplit(self._registry).netloc:
            return found
        return msgspec.structs.replace(found, token=self._token)

    def _registry_contacts(self) -> tuple[RegistryContacts, ...]:
        if self._registry is None:
            return ()
        if self._client is None:
            address = load_connection_settings({"server": self._registry, "token": self._token, "ca": self._ca})
            self._client = Client(self._registry, self._token, ca=self._ca)
            self._http = http_client(address)
            self._token = address.token
        return (RegistryContacts(self._client, self._http, self._token),)

    # --- What handlers say -----------------------------------------------------------------------

    def _chat(self, letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        return HandlerReplies(self._on_chat, letter)

    def _task(self, letter: AgentMessage, conversation: AgpConnection | None) -> AsyncIterator[MessageContent]:
        return HandlerReplies(self._on_task, letter)

    async def _late(self, letter: AgentMessage) -> None:
        if self._on_reply is not None:
            await self._on_reply(chat_message(letter))


def _domain_contacts(resolver: str | OutboundOptions, ca: Path | None) -> DomainContacts:
    """What domains themselves say. Where a stranger's DNS leads is not followed into networks that were not allowed."""
    options = resolver if isinstance(resolver, OutboundOptions) else OutboundOptions(resolver=resolver, ca_file=ca)
    outgoing, policy = OutboundClient(options), AddressPolicy(options.allow_cidrs)

    def check(address: str, port: int) -> None:
        policy.check(ipaddress.ip_address(address), port)

    return DomainContacts(DomainResolver(outgoing.dns, outgoing, SystemClock(), ResolveOptions()), check)


def _merge_contacts(found: Contact | None, other: Contact | None) -> Contact | None:
    if found is None or other is None:
        return found or other
    return Contact(
        agent=found.agent,
        url=found.url or other.url,
        key=found.key or other.key,
        token=found.token or other.token,
        address=found.address if found.url is not None else other.address,
    )


def _subprotocol(connection: ServerConnection, offered: Any) -> Subprotocol | None:
    """`adp-v1` where it is offered; it is not required (P-2)."""
    return Subprotocol(SUBPROTOCOL) if SUBPROTOCOL in offered else None

"""`LiveAgent`: an agent in a program that accepts and opens AGP conversations. The composition root of a program, like `app/`."""

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
from waypost.registry.memory_key_value import MemoryKeyValueStore
from waypost.registry.ports import KeyValueStore
from waypost.settings import is_loopback, load_connection_settings
from waypost.stores.sqlite.key_value import SqliteKeyValueStore
from waypost.trust.keys.private_key import PrivateKey

CHAT_PATH = "/agent/chat"


class LiveAgent:
    """An agent that converses over AGP. Use it with `async with`.

    Example:
        agent = LiveAgent("agent:alice.example.com", key=Path("alice.pem"))

        @agent.on_chat
        async def answer(message):
            return f"You said {message.text}."

        async with agent:
            print("Publish this address:", await agent.listen())
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
        """Describe an agent; `async with` makes it live.

        Args:
            agent: Its Agent URI, such as `agent:alice.example.com`.
            key: Its Ed25519 key, or the PEM file of the key.
            data: A folder in which messages survive this process. Default: they are kept in memory.
            registry: The URL of a registry that knows other agents.
            token: A token for the registry.
            contacts: Further sources of contacts.
            resolver: Find other agents by DNS: a value of the setting `resolver` ("system", "host:port", "tls://…",
                "https://…"), or `OutboundOptions` with trust anchors, allowed networks and more.
            keeper: A store for the messages, instead of `data`.
            tls: The TLS context of outgoing connections.
            ca: A PEM file with the certificate authorities of other agents.
            timing: Timeouts and intervals.
            news: Called with each event of a connection.
        """
        self.agent = parse_agent(agent, "agent")
        self.key = key if isinstance(key, PrivateKey) else read_key(key)
        if self.key.public.fingerprint() is None:
            raise InvalidKey("ADP supports Ed25519 keys only.", path="key", hint="Create one with `waypost keys new`.")
        self._keeper = keeper or (SqliteKeyValueStore(data) if data is not None else MemoryKeyValueStore())
        self._owns_keeper = keeper is None
        self._static_contacts = StaticContacts()
        self._other_contacts = tuple(contacts) if resolver is None else (*contacts, _domain_contacts(resolver, ca))
        self._registry = registry
        self._token = token
        self._tls = tls or (tls13_context(ca) if ca is not None else None)
        self._ca = ca
        self._timing = timing
        self._news = news
        self._client: Client | None = None
        self._http: Any = None
        self._connections: dict[str, PeerConnection] = {}
        self._servers: list[Server] = []
        self._handshakes: Counter[str] = Counter()
        self._on_chat: ChatHandler | None = None
        self._on_task: ChatHandler | None = None
        self._on_reply: LateReplyHandler | None = None
        self._me: AgpEndpoint | None = None

    def __repr__(self) -> str:
        return f"<LiveAgent {self.agent}>"

    def on_chat(self, handler: ChatHandler) -> ChatHandler:
        """Register the handler of chats; usable as a decorator.

        Args:
            handler: Receives a `ChatMessage`. It returns a text, yields parts of one, or returns None for no answer.

        Example:
            agent = LiveAgent("agent:alice.example.com", key=Path("alice.pem"))

            @agent.on_chat
            async def answer(message):
                return f"You said {message.text}."
        """
        self._on_chat = handler
        return handler

    def on_task(self, handler: ChatHandler) -> ChatHandler:
        """Register the handler of messages of the type `task`; usable as a decorator.

        Args:
            handler: As for `on_chat`.

        Example:
            agent = LiveAgent("agent:alice.example.com", key=Path("alice.pem"))

            @agent.on_task
            async def work(message):
                return f"Done: {message.text}"
        """
        self._on_task = handler
        return handler

    def on_reply(self, handler: LateReplyHandler) -> LateReplyHandler:
        """Register the handler of answers that arrive after a restart or a timeout; usable as a decorator.

        Args:
            handler: Receives a `ChatMessage`.

        Example:
            agent = LiveAgent("agent:alice.example.com", key=Path("alice.pem"))

            @agent.on_reply
            async def late(message):
                print("An answer came late:", message.text)
        """
        self._on_reply = handler
        return handler

    def callbacks(self, handler: PostedHandler) -> CallbackReceiver:
        """An ASGI application for the `callback` URL of tasks and swarms: it passes each message that is signed for this agent to
        `handler`, once. Use it while the agent is live.

        Args:
            handler: Receives each message.

        Example:
            agent = LiveAgent("agent:alice.example.com", key=Path("alice.pem"))

            async def posted(message):
                print(message)

            app = agent.callbacks(posted)
        """
        return CallbackReceiver(self.agent, self, self._keeper, handler)

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
            on_chat=self._reply_to_chat,
            on_task=self._reply_to_task if self._on_task is not None else None,
            on_late_answer=self._on_late_answer,
            timeouts=self._timing,
        )
        await self._me.recover()
        for peer in await self._me.store.pending_peers():
            self._connect(peer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for peer_connection in list(self._connections.values()):
            await peer_connection.close()
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

    def knows(
        self, agent: str, *, url: str | None = None, fingerprint: str | None = None, token: str | None = None
    ) -> None:
        """Add the URL and key fingerprint of an agent.

        Args:
            agent: Its Agent URI.
            url: Where it takes calls (`wss://…`).
            fingerprint: The fingerprint of its key (`ed25519:…`).
            token: A token for the call.

        Example:
            agent = LiveAgent("agent:alice.example.com", key=Path("alice.pem"))
            agent.knows("agent:bob.example.com", url="wss://bob.example.com/agent/chat")
        """
        self._static_contacts.add(parse_agent(agent, "agent"), url=url, fingerprint=fingerprint, token=token)

    async def talk(self, to: str) -> Verdict | None:
        """Connect to an agent, and reconnect whenever the connection is lost. Returns the verdict on the peer.

        Args:
            to: The Agent URI.

        Example:
            async with LiveAgent("agent:alice.example.com", key=Path("alice.pem"), registry="http://127.0.0.1:8440") as alice:
                print(await alice.talk("agent:bob.example.com"))
        """
        return self.verdict(await self._ensure_connected(to))

    async def _ensure_connected(self, to: str) -> str:
        if to in self.me.connections:
            return to
        peer = parse_agent(to, "to")
        if peer not in self.me.connections:
            await self._connect(peer).wait()
        return peer

    async def chat(self, to: str, text: str, *, timeout: float = limits.AGP_ANSWER_SECONDS) -> Reply:  # noqa: ASYNC109
        """Send a text, and wait for the answer.

        Args:
            to: The Agent URI.
            text: What to say.
            timeout: Seconds to wait for the answer.

        Example:
            async with LiveAgent("agent:alice.example.com", key=Path("alice.pem"), registry="http://127.0.0.1:8440") as alice:
                reply = await alice.chat("agent:bob.example.com", "Hello, Bob.")
                print(reply.text)
        """
        peer = await self._ensure_connected(to)
        messages = await self.me.request(self.me.make_message(peer, MessageContent(text=text)), seconds=timeout)
        parts = tuple(chat_message(message) for message in messages)
        return Reply(text="".join(part.text for part in parts), parts=parts, verdict=self.verdict(peer))

    async def stream(
        self,
        to: str,
        text: str,
        *,
        timeout: float = limits.AGP_ANSWER_SECONDS,  # noqa: ASYNC109
    ) -> AsyncIterator[ChatMessage]:
        """Send a text, and yield the parts of the answer.

        Args:
            to: The Agent URI.
            text: What to say.
            timeout: Seconds to wait for the answer.

        Example:
            async with LiveAgent("agent:alice.example.com", key=Path("alice.pem"), registry="http://127.0.0.1:8440") as alice:
                async for part in alice.stream("agent:bob.example.com", "Tell me a story."):
                    print(part.text, end="")
        """
        peer = await self._ensure_connected(to)
        async for message in self.me.stream_answer(
            self.me.make_message(peer, MessageContent(text=text)), seconds=timeout
        ):
            yield chat_message(message)

    async def send(self, to: str, text: str, *, kind: str = "chat") -> str:
        """Send a message without waiting; it is delivered once, now or when the peer is reachable. Returns its id.

        Args:
            to: The Agent URI.
            text: What to say.
            kind: The type of the message: `chat` or `task`.

        Example:
            async with LiveAgent("agent:alice.example.com", key=Path("alice.pem"), data=Path("messages")) as alice:
                message_id = await alice.send("agent:bob.example.com", "Read this when you are back.")
        """
        me = self.me
        peer = to if to in me.connections else parse_agent(to, "to")
        message = me.make_message(peer, MessageContent(text=text), kind=kind)
        await me.send(message)
        if peer not in me.connections:
            self._connect(peer)
        return message.id

    def verdict(self, peer: str) -> Verdict | None:
        """The verdict on a connected agent; None if it is not connected.

        Args:
            peer: The Agent URI.

        Example:
            async with LiveAgent("agent:alice.example.com", key=Path("alice.pem"), registry="http://127.0.0.1:8440") as alice:
                await alice.talk("agent:bob.example.com")
                print(alice.verdict("agent:bob.example.com"))
        """
        connection = self.me.connections.get(peer)
        return None if connection is None else connection.verdict()

    def _connect(self, peer: str) -> PeerConnection:
        peer_connection = self._connections.get(peer)
        if peer_connection is None or peer_connection.is_over:
            peer_connection = self._connections[peer] = PeerConnection(
                self.me, peer, self.contact, self, tls=self._tls, on_event=self._news, on_control=self._on_control
            )
        return peer_connection

    async def _on_control(self, connection: AgpConnection, action: JsonObject, message: AgpMessage) -> bool:
        """A relay offers a mailbox for a peer that is away. Pending messages are deposited if the relay is known."""
        if action["action"] != "mailbox" or connection.is_open:
            return False
        relay = await self.key_of(message.sender)
        if relay is None or relay.key is None or not verify(relay.key, message.signature, message.signing_input):
            return False
        count = await connection.deposit()
        if self._news is not None:
            seconds = action.get("seconds")
            reason = f"the agent is away; {message.sender} stores {count} messages for {seconds} seconds"
            self._news(PeerConnectionEvent(peer=connection.peer, event="kept", reason=reason))
        return True

    async def listen(self, host: str = "127.0.0.1", port: int = 0, *, tls: ssl.SSLContext | None = None) -> str:
        """Accept connections. Returns the URL to publish as `endpoints.chat`.

        Args:
            host: The address to listen on. Other than loopback needs `tls`.
            port: The port; 0 picks a free one.
            tls: The certificate and its key.

        Example:
            async with LiveAgent("agent:alice.example.com", key=Path("alice.pem")) as alice:
                print("Publish this address:", await alice.listen())
        """
        if tls is None and not is_loopback(host):
            raise ConfigurationError(
                "Conversations need TLS.", path="tls", hint="Pass a certificate, or listen on 127.0.0.1."
            )
        server = await serve(
            self._accept,
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
        """Attach to a relay, so that others can reach this agent through it; by default the registry. Returns the URL to publish
        as `endpoints.chat`.

        Args:
            relay: The Agent URI of the relay.

        Example:
            async with LiveAgent("agent:alice.example.com", key=Path("alice.pem"), registry="http://127.0.0.1:8440") as alice:
                print("Publish this address:", await alice.attach())
        """
        peer = parse_agent(relay, "relay") if relay is not None else await self._registry_agent()
        clients: list[RelayClient] = []
        attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wrap(link: AgpLink) -> AgpLink:
            clients[:] = [RelayClient(link, self.me, peer)]
            return clients[0]

        async def on_control(connection: AgpConnection, action: JsonObject, message: AgpMessage) -> bool:
            if action["action"] == "attached" and not attached.done():
                attached.set_result(None)
            return await clients[0].on_control(connection, action, message)

        peer_connection = self._connections[f"relay {peer}"] = PeerConnection(
            self.me,
            peer,
            self.contact,
            self,
            tls=self._tls,
            on_event=self._news,
            wrap=wrap,
            on_open=attach_to_relay,
            on_control=on_control,
        )
        await peer_connection.wait()
        await asyncio.wait(
            (attached, peer_connection.task), timeout=limits.AGP_HANDSHAKE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if not attached.done():
            raise Forbidden(f"{peer} does not relay for {self.agent}.", path="relay", hint=peer_connection.reason)
        return (await self.contact(peer)).url or ""

    async def _registry_agent(self) -> str:
        for source in self._registry_contacts():
            return (await source.registry_contact()).agent
        raise InvalidRequest(
            "There is no registry.", path="registry", hint="Pass a registry to LiveAgent, or name a relay."
        )

    async def _accept(self, connection: ServerConnection) -> None:
        address = str((connection.remote_address or ("",))[0])
        if self._handshakes[address] >= limits.AGP_PENDING_HANDSHAKES:
            await connection.close(4429, "too many concurrent handshakes of this address")
            return
        self._handshakes[address] += 1
        is_handshaking = True

        async def opened(_: AgpConnection) -> None:
            nonlocal is_handshaking
            is_handshaking = False
            self._handshakes[address] -= 1

        try:
            await self.me.run_connection(WebSocketLink(connection), opened=opened)
        except (LinkLost, PeerClosed, PeerError, WaypostError):
            return
        finally:
            if is_handshaking:
                self._handshakes[address] -= 1

    async def key_of(self, agent: str) -> PeerIdentity | None:
        """`PeerKeySource` of messaging/peers.py.

        Args:
            agent: The Agent URI.
        """
        contact = await self._find(agent)
        return None if contact is None else contact.key

    async def contact(self, agent: str) -> Contact:
        """Where an agent can be reached, and its key. Raises UnknownPeer if no source knows it.

        Args:
            agent: The Agent URI.

        Example:
            async with LiveAgent("agent:alice.example.com", key=Path("alice.pem"), registry="http://127.0.0.1:8440") as alice:
                print((await alice.contact("agent:bob.example.com")).url)
        """
        found = await self._find(agent)
        if found is None:
            raise UnknownPeer(
                f"{agent} is unknown.",
                path="to",
                hint="Pass a registry that knows it, or its URL and fingerprint.",
            )
        return found

    async def _find(self, agent: str) -> Contact | None:
        """URL and key, each from the first source that knows it."""
        found = await self._static_contacts.find(agent)
        failure: WaypostError | None = None
        for source in (*self._other_contacts, *self._registry_contacts()):
            if found is not None and found.key is not None and found.url is not None:
                break
            try:
                found = _merge_contacts(found, await source.find(agent))
            except Unavailable as error:  # another source may know it
                failure = failure or error
        if found is None and failure is not None:
            raise failure
        return self._with_token(found)

    def _with_token(self, found: Contact | None) -> Contact | None:
        """Add the token for URLs of the registry only."""
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
            self._http = http_client(msgspec.structs.replace(address, token=None))  # it reads documents of agents, too
            self._token = address.token
        return (RegistryContacts(self._client, self._http, self._token),)

    def _reply_to_chat(self, message: AgentMessage, connection: AgpConnection | None) -> AsyncIterator[MessageContent]:
        return HandlerReplies(self._on_chat, message)

    def _reply_to_task(self, message: AgentMessage, connection: AgpConnection | None) -> AsyncIterator[MessageContent]:
        return HandlerReplies(self._on_task, message)

    async def _on_late_answer(self, message: AgentMessage) -> None:
        if self._on_reply is not None:
            await self._on_reply(chat_message(message))


def _domain_contacts(resolver: str | OutboundOptions, ca: Path | None) -> DomainContacts:
    """Contacts by DNS. Addresses in networks that are not allowed are rejected (SSRF)."""
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
    """`adp-v1` if it is offered; it is optional (P-2)."""
    return Subprotocol(SUBPROTOCOL) if SUBPROTOCOL in offered else None

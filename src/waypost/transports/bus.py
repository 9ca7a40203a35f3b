"""Announcements over NATS (announce.md §6.6, extra `bus`).

All participants subscribe to one topic for announcements and queries; responses go to the inbox of the sender. Anyone who may
publish there can send anything, so only signatures count (THREATS B2, B4). Registries that share their agents form a queue
group: one of them answers a query, all of them receive every announcement. Nodes of one cluster have one store, so one of them
handles each announcement, too.

No exception of nats-py leaves this module. Sending without a connection fails instead of queueing, so that no stale message is
sent later.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import random as randomness
import re
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from waypost import limits
from waypost.errors import ConfigurationError, InternalError, InvalidKey, TooLarge, Unavailable, WaypostError
from waypost.model.json import JsonObject, dump_json
from waypost.protocols.announce.messages import (
    TOPIC,
    AgentQuery,
    MessageKind,
    build_query,
    check_group,
    digest_of,
    kind_of_message,
    parse_message,
    reply_subject,
    servers_of,
    subject_of,
)
from waypost.rate_limit import TokenBucket
from waypost.settings import Settings
from waypost.transports.directory import AgentDirectory, Subscriber, agent_id_of
from waypost.transports.dispatcher import Dispatcher
from waypost.transports.port import (
    QUERY_SECONDS,
    Ack,
    DropCounts,
    MessageHandler,
    QueryHandler,
    SightingCallback,
    TransportClock,
    describe_failure,
)

try:
    import nkeys  # noqa: F401 - nats-py imports it when it authenticates with a key
    from nats.aio.client import Client, RawCredentials
    from nats.aio.msg import Msg
    from nats.errors import Error as NatsError
except ImportError as error:
    raise ConfigurationError(
        "The bus needs the packages nats-py and nkeys.",
        path="bus",
        hint="Install them with `pip install 'waypost[bus]'`.",
    ) from error

log = logging.getLogger("waypost.transports")

BusCallback: TypeAlias = Callable[[bytes, str], Awaitable[None]]  # a message, and the inbox of its sender

_FAILURES = (NatsError, OSError, TimeoutError)

_FLUSH_POLL_SECONDS = 0.001

_CREDENTIALS_BLOCK = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s+(\S+)\s+-{3,}END \1-{3,}")
_SEED_PREFIX, _USER_PREFIX, _SEED_BYTES = 18 << 3, 20 << 3, 34  # base32 letters S and U; two prefix bytes and the key

_ANY_AGENT = AgentQuery()

_DISCOVERY_SECONDS = 3.0

_ID_HEADER = "Nats-Msg-Id"  # JetStream deduplicates by it

_KEY_HEADER = "Agent-Id"


class BusCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """Files, read at each connection so that they can be replaced. The URL may contain a user name and password instead."""

    creds: Path | None = None  # a user JWT and its seed
    nkey: Path | None = None  # the seed of a user key
    token: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None

    def options(self) -> dict[str, Any]:
        """Options for `Client.connect`."""
        options: dict[str, Any] = {}
        if self.creds is not None:
            options["user_credentials"] = parse_credentials(_read_text(self.creds, "bus_creds"))
        elif self.nkey is not None:
            options["nkeys_seed_str"] = parse_user_seed(_read_text(self.nkey, "bus_nkey"))
        if self.token is not None:
            options["token"] = _read_text(self.token, "bus_token").strip()
        if self.ca is not None or self.cert is not None:
            options["tls"] = self._tls_context()
        return options

    def _tls_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.cert_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"Cannot load the certificates for the bus: {error.strerror or error}.",
                path="bus_ca",
                hint="`bus_ca`, `bus_cert` and `bus_cert_key` name PEM files.",
            ) from None
        return context


def bus_credentials_of(settings: Settings) -> BusCredentials:
    return BusCredentials(
        creds=settings.bus_creds,
        nkey=settings.bus_nkey,
        token=settings.bus_token,
        ca=settings.bus_ca,
        cert=settings.bus_cert,
        cert_key=settings.bus_cert_key,
    )


def parse_user_seed(text: str) -> str:
    """A user seed (`SU…`). nats-py does not verify its checksum."""
    seed = text.strip()
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except (binascii.Error, ValueError):
        raise _invalid_key("it is not base32") from None
    data, checksum = raw[:-2], raw[-2:]
    if binascii.crc_hqx(data, 0).to_bytes(2, "little") != checksum:  # CRC-16/XMODEM
        raise _invalid_key("its checksum is wrong")
    if len(data) != _SEED_BYTES or data[0] & 0xF8 != _SEED_PREFIX or (data[0] & 7) << 5 | data[1] >> 3 != _USER_PREFIX:
        raise _invalid_key("it is not the seed of a user (SU…)")
    return seed


def parse_credentials(text: str) -> RawCredentials:
    """A credentials file: the JWT of a user and the seed of its key."""
    blocks = dict(_CREDENTIALS_BLOCK.findall(text))
    token, seed = blocks.get("NATS USER JWT"), blocks.get("USER NKEY SEED")
    if token is None or seed is None:
        raise _invalid_key("it has no NATS USER JWT and USER NKEY SEED")
    parts = (("NATS USER JWT", token), ("USER NKEY SEED", parse_user_seed(seed)))
    return RawCredentials(
        "".join(f"-----BEGIN {name}-----\n{value}\n------END {name}------\n" for name, value in parts)
    )


def _invalid_key(reason: str) -> InvalidKey:
    return InvalidKey(f"Invalid key for the bus: {reason}.", path="bus_nkey", hint="Create it with `nsc` or `nk`.")


def _read_text(path: Path, setting: str) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not text"
        raise ConfigurationError(
            f"Cannot read {path}: {reason}.", path=setting, hint=f"Name a file that this user may read in {setting}."
        ) from None


class BusConnection:
    """A NATS connection that is re-established, with its subscriptions, whenever it is lost."""

    def __init__(
        self, url: str, on_reconnect: Callable[[], Awaitable[None]], credentials: BusCredentials | None = None
    ) -> None:
        """`url`: nats:// or tls://, optionally with user and password; several separated by commas."""
        self._credentials = credentials or BusCredentials()
        self._servers = servers_of(url)
        self._on_reconnect = on_reconnect
        self._client: Client | None = None
        self._subscriptions: list[tuple[str, BusCallback, str]] = []
        self._reconnect_task: asyncio.Task[None] | None = None
        self.inbox = ""

    @property
    def is_up(self) -> bool:
        return self._client is not None and self._client.is_connected

    async def open(self) -> None:
        self._client = await self._connect()
        self.inbox = self._client.new_inbox()

    async def close(self) -> None:
        client, self._client = self._client, None
        if self._reconnect_task is not None:
            self._reconnect_task.cancel()
        self._subscriptions.clear()
        if client is not None:
            with suppress(*_FAILURES):
                await client.close()

    async def _connect(self) -> Client:
        """Raises once every server has failed; nats-py itself would retry forever."""
        client = Client()
        options = self._credentials.options()
        failures: list[Exception] = []
        all_failed = asyncio.Event()

        async def on_error(error: Exception) -> None:
            failures.append(error)
            if len(failures) >= len(self._servers):
                all_failed.set()
            await self._on_error(error)

        connecting = asyncio.ensure_future(self._start(client, on_error, options))
        failing = asyncio.ensure_future(all_failed.wait())
        try:
            await asyncio.wait(
                (connecting, failing), timeout=limits.BUS_OPEN_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if connecting.done() and connecting.exception() is None:
                return client
        finally:
            failing.cancel()
            connecting.cancel()
        reason = describe_failure(failures[-1] if failures else client.last_error)
        with suppress(*_FAILURES):
            await client.close()
        raise _unreachable(reason)

    async def _start(
        self, client: Client, on_error: Callable[[Exception], Awaitable[None]], options: dict[str, Any]
    ) -> None:
        with suppress(asyncio.CancelledError):
            await client.connect(
                list(self._servers),
                name="waypost",
                connect_timeout=limits.BUS_OPEN_SECONDS,
                max_reconnect_attempts=-1,
                reconnect_time_wait=1,
                ping_interval=limits.BUS_PING_SECONDS,
                error_cb=on_error,
                disconnected_cb=self._on_disconnected,
                reconnected_cb=self._on_reconnected,
                closed_cb=self._on_closed,
                **options,
            )

    async def subscribe(self, subject: str, callback: BusCallback, group: str = "") -> None:
        await self._subscribe(self._connected_client(), subject, callback, group)
        self._subscriptions.append((subject, callback, group))

    async def _subscribe(self, client: Client, subject: str, callback: BusCallback, group: str) -> None:
        async def receive(message: Msg) -> None:
            await callback(message.data, message.reply)

        try:
            await client.subscribe(
                subject,
                queue=group,
                cb=receive,
                pending_msgs_limit=limits.BUS_PENDING,
                pending_bytes_limit=limits.BUS_PENDING_BYTES,
            )
        except _FAILURES as error:
            raise _unreachable(describe_failure(error)) from None

    async def send(self, subject: str, data: bytes, *, reply: str = "", headers: dict[str, str] | None = None) -> None:
        try:
            await self._connected_client().publish(subject, data, reply=reply, headers=headers)
        except _FAILURES as error:
            raise _unreachable(describe_failure(error)) from None

    async def flush(self) -> None:
        """Wait until the server has processed everything that was sent.

        The PING of `Client.flush` overtakes commands that are still buffered, so wait for the buffer first.
        """
        client = self._connected_client()
        try:
            async with asyncio.timeout(limits.BUS_OPEN_SECONDS):
                while client.pending_data_size and client.is_connected:  # noqa: ASYNC110 - nats-py has no event for it
                    await asyncio.sleep(_FLUSH_POLL_SECONDS)
                await client.flush(limits.BUS_OPEN_SECONDS)
        except _FAILURES as error:
            raise _unreachable(describe_failure(error)) from None
        self._connected_client()

    def _connected_client(self) -> Client:
        if self._client is None or not self._client.is_connected:
            raise _unreachable("there is no connection")
        return self._client

    async def _on_error(self, error: Exception) -> None:
        """Most errors are reported by the call that failed; a missing permission is reported here alone."""
        is_denied = "permissions violation" in str(error).lower()
        log.log(logging.WARNING if is_denied else logging.DEBUG, "bus: %s", error)

    async def _on_disconnected(self) -> None:
        if self._client is not None and self._reconnect_task is None:
            log.warning("bus: connection lost, reconnecting")

    async def _on_closed(self) -> None:
        """The server closed the connection, e.g. because its users changed. nats-py does not reconnect then."""
        if self._client is not None and self._reconnect_task is None:
            self._reconnect_task = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        while True:
            await asyncio.sleep(limits.BUS_RECONNECT_SECONDS)
            try:
                client = await self._connect()
            except WaypostError as error:
                log.debug("bus: %s", error)
                continue
            if await self._resume(client):
                self._client, self._reconnect_task = client, None
                await self._on_reconnected()
                return
            await client.close()

    async def _resume(self, client: Client) -> bool:
        try:
            for subject, callback, group in self._subscriptions:
                await self._subscribe(client, subject, callback, group)
        except WaypostError as error:
            log.debug("bus: %s", error)
            return False
        return True

    async def _on_reconnected(self) -> None:
        log.info("bus: connected again")
        try:
            await self._on_reconnect()
        except WaypostError as error:
            log.warning("bus: %s", error)


def _unreachable(reason: str) -> Unavailable:
    return Unavailable(
        f"The bus is not available: {reason.removeprefix('nats: ').rstrip('.')}.",
        path="bus",
        hint="Check that it is running, its URL, and the credentials: user and password, bus_creds, bus_nkey or bus_token.",
    )


class ParkedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message whose handling failed repeatedly, and why."""

    digest: str
    data: bytes
    reason: str
    at: float


class Redelivery:
    """Handles each message once. A rejected message is judged anew when it comes again: a rule may admit it by then. Other
    failures are retried after a pause, and a message that fails every time is parked, so that the others go on (THREATS B3,
    B5)."""

    def __init__(
        self, name: str, clock: TransportClock, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._name = name
        self._clock = clock
        self._pause = pause
        self._handled: OrderedDict[str, float] = OrderedDict()  # digests and times
        self._parked: OrderedDict[str, ParkedMessage] = OrderedDict()

    @property
    def parked(self) -> tuple[ParkedMessage, ...]:
        return tuple(self._parked.values())

    def begin(self, digest: str) -> bool:
        """Whether to handle a message: False for a recent duplicate and for a parked one."""
        now = self._clock.now()
        parked = self._parked.get(digest)
        if parked is not None and now - parked.at < limits.DEAD_LETTER_SECONDS:
            return False
        handled_at = self._handled.get(digest)
        if handled_at is not None and 0 <= now - handled_at < limits.DUPLICATE_WINDOW_SECONDS:
            return False
        self._handled[digest] = now
        self._handled.move_to_end(digest)
        if len(self._handled) > limits.DUPLICATE_WINDOW_MESSAGES:
            self._handled.popitem(last=False)
        return True

    async def run(self, digest: str, data: bytes, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` until the message is handled, rejected or parked."""
        for seconds in (*limits.REDELIVERY_DELAYS_SECONDS, None):
            failure = await _outcome(work)
            if failure is None:
                self._parked.pop(digest, None)
                return
            if not _is_transient(failure):
                log.debug("%s: message rejected: %s", self._name, failure)
                self._handled.pop(digest, None)
                return
            if seconds is None:
                self._park(digest, data, failure)
            else:
                await self._pause(seconds)

    def _park(self, digest: str, data: bytes, failure: BaseException) -> None:
        reason = failure.message if isinstance(failure, WaypostError) else type(failure).__name__
        self._parked[digest] = ParkedMessage(digest=digest, data=data, reason=reason, at=self._clock.now())
        self._parked.move_to_end(digest)
        if len(self._parked) > limits.DEAD_LETTERS:
            self._parked.popitem(last=False)
        fault = None if isinstance(failure, WaypostError) else failure
        log.warning("%s: message %s is parked: %s", self._name, digest[:16], reason, exc_info=fault)


def _is_transient(failure: BaseException) -> bool:
    """Whether a retry may succeed. An internal error says nothing about the message."""
    return not isinstance(failure, WaypostError) or isinstance(failure, Unavailable | InternalError)


async def _outcome(work: Callable[[], Awaitable[None]]) -> BaseException | None:
    """The exception of the work, if any. A task contains every kind of failure."""
    task = asyncio.ensure_future(work())
    try:
        await asyncio.wait({task})
    finally:
        task.cancel()
    return task.exception()


class BusTransport:
    name = "bus"

    def __init__(
        self,
        url: str,
        clock: TransportClock,
        *,
        topic: str = TOPIC,
        group: str = "",
        shares_announcements: bool = False,
        credentials: BusCredentials | None = None,
        random: randomness.Random | None = None,
        directory: AgentDirectory | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`group`: one of its members answers each query. `shares_announcements`: one of them handles each announcement."""
        random = random or randomness.SystemRandom()
        self._subject = subject_of(topic)
        self._group = check_group(group) if group else ""
        self._shares_announcements = shares_announcements
        self._clock = clock
        self._connection = BusConnection(url, self._on_reconnect, credentials)
        self._dispatcher = Dispatcher(self.name, clock, random, directory)
        self._group_dispatcher = Dispatcher(self.name, clock, random)  # answers queries to the group
        self._redelivery = Redelivery(self.name, clock, pause)
        self._bucket = TokenBucket(limits.PACKETS_PER_SECOND, limits.PACKETS_BURST)
        self._slots = asyncio.Semaphore(limits.PENDING_ANSWERS)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._dropped = 0

    @property
    def parked(self) -> tuple[ParkedMessage, ...]:
        """The most recent messages that could not be handled."""
        return self._redelivery.parked

    async def open(self) -> None:
        await self._connection.open()
        try:
            await self._connection.subscribe(self._connection.inbox, partial(self._receive, self._dispatcher))
            await self._connection.subscribe(self._subject, partial(self._receive, self._dispatcher))
            if self._group:
                await self._connection.subscribe(self._subject, self._receive_for_group, self._group)
            await self._connection.flush()
        except WaypostError:
            await self.close()
            raise

    async def close(self) -> None:
        await self._connection.close()
        self._dispatcher.subscriptions.close()
        for task in tuple(self._tasks):
            task.cancel()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        """An announcement that cannot be sent now is sent after a reconnect, unless it has expired."""
        try:
            data = _encode({**message, "ttl": ttl})
            until = self._dispatcher.local_agents.put(message, ttl, self._clock.now())
            await self._publish(agent_id_of(message), data)
            await self._connection.flush()
        except WaypostError as error:
            return Ack(False, reason=error.message)
        return Ack(True, until)

    async def withdraw(self, agent_id: str) -> None:
        self._dispatcher.local_agents.remove(agent_id)

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        sent = self._dispatcher.begin_query(query)
        try:
            await self._send_query(sent)
        except WaypostError:
            await self._dispatcher.collect(sent, 0)
            raise
        return await self._dispatcher.collect(sent, timeout)

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._dispatcher.subscriptions.subscribe(callback, query)
        self._start(self._discover(query or _ANY_AGENT))
        return subscriber

    def serve(self, on_query: QueryHandler | None, on_message: MessageHandler | None) -> None:
        shares = self._shares_announcements
        self._dispatcher.serve(None if self._group else on_query, None if shares else on_message)
        self._group_dispatcher.serve(on_query, on_message if shares else None)

    def echoed_at(self) -> float | None:
        return self._dispatcher.echoed_at

    def drop_counts(self) -> DropCounts:
        return DropCounts(dropped=self._dropped, parked=len(self._redelivery.parked))

    async def _publish(self, agent_id: str, data: bytes) -> None:
        headers = {_ID_HEADER: digest_of(data), _KEY_HEADER: agent_id}
        await self._connection.send(self._subject, data, reply=self._connection.inbox, headers=headers)

    async def _send_query(self, query: AgentQuery) -> None:
        inbox = self._connection.inbox
        await self._connection.send(self._subject, dump_json(build_query(query, reply_to=inbox)), reply=inbox)

    async def _discover(self, query: AgentQuery) -> None:
        try:
            await self.query(query, _DISCOVERY_SECONDS)
        except WaypostError as error:
            log.debug("bus: discovery failed: %s", error)

    async def _on_reconnect(self) -> None:
        """Announce and discover again: messages may have been missed on both sides."""
        for message in self._dispatcher.local_agents.matching(_ANY_AGENT, self._clock.now()):
            await self._publish(agent_id_of(message), dump_json(message))
        if self._dispatcher.subscriptions.is_active:
            self._start(self._discover(_ANY_AGENT))

    async def _receive(self, dispatcher: Dispatcher, data: bytes, inbox: str) -> None:
        """Waits for a free slot. The server then buffers messages, and finally drops them."""
        if not self._bucket.take(asyncio.get_running_loop().time()):
            self._dropped += 1
            return
        try:
            message = parse_message(data)
            reply = reply_subject(self._subject, inbox, message)
        except WaypostError as error:
            log.debug("bus: invalid message: %s", error)
            return
        kind = kind_of_message(message)
        digest = digest_of(data)
        if not self._handles(dispatcher, kind) or (kind == "announce" and not self._redelivery.begin(digest)):
            return
        await self._slots.acquire()
        work = partial(self._handle, dispatcher, message, reply)
        self._start(self._redelivery.run(digest, data, work)).add_done_callback(lambda _: self._slots.release())

    def _handles(self, dispatcher: Dispatcher, kind: MessageKind) -> bool:
        """A member of a group may receive a message twice: for the group, and for itself."""
        is_shared = kind == "announce" and self._shares_announcements
        return kind == "query" or is_shared if dispatcher is self._group_dispatcher else not is_shared

    async def _receive_for_group(self, data: bytes, inbox: str) -> None:
        """Without shared announcements queries alone: the rest reaches every member anyway, and need not be parsed twice."""
        if self._shares_announcements or b'"query"' in data:
            await self._receive(self._group_dispatcher, data, inbox)

    async def _handle(self, dispatcher: Dispatcher, message: JsonObject, reply: str) -> None:
        is_query = kind_of_message(message) == "query"
        for response in (await dispatcher.handle(message, self._subject))[: limits.ANSWERS_PER_QUERY]:
            # Only own messages may be sent to the topic: two registries that reply to each other would never stop.
            if is_query or reply != self._subject or dispatcher.local_agents.contains(response):
                await self._connection.send(reply, _encode(response))

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _encode(message: JsonObject) -> bytes:
    data = dump_json(message)
    if len(data) > limits.ANNOUNCE_BYTES:
        raise TooLarge(
            f"The message has {len(data)} bytes; the limit is {limits.ANNOUNCE_BYTES}.",
            path="$",
            hint="Shorten the metadata.",
        )
    return data

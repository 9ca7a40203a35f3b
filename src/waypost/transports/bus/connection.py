"""Who a client of the bus is, and whom it trusts: files that are read at each connection, so that they may be replaced."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from waypost import limits
from waypost.errors import ConfigurationError, Unavailable, WaypostError
from waypost.protocols.announce.messages import servers_of
from waypost.settings import Settings
from waypost.transports.port import describe_failure
from waypost.trust.keys.nkeys import parse_nats_credentials, parse_nkey_seed


class BusCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """Files. User and password stand in the address of the bus, if anywhere."""

    creds: Path | None = None  # a user's JWT and its seed
    nkey: Path | None = None  # the seed of a user's key
    token: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None

    def options(self) -> tuple[dict[str, Any], str | None]:
        """For a client of NATS, and the public key that it shows where no JWT does."""
        options: dict[str, Any] = {}
        public = None
        if self.creds is not None:
            told, key = parse_nats_credentials(_text(self.creds, "bus_creds"))
            options |= {"user_jwt_cb": lambda: bytearray(told.encode()), "signature_cb": key.sign}
        elif self.nkey is not None:
            key = parse_nkey_seed(_text(self.nkey, "bus_nkey"))
            options["signature_cb"], public = key.sign, key.public
        if self.token is not None:
            options["token"] = _text(self.token, "bus_token").strip()
        if self.ca is not None or self.cert is not None:
            options["tls"] = self._context()
        return options, public

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.cert_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"The certificates for the bus cannot be used: {error.strerror or error}.",
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


def _text(path: Path, setting: str) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(
            f"{path} cannot be read: {reason}.", path=setting, hint=f"Name a file that this user may read as {setting}."
        ) from None


# ---- A connection to NATS (extra `bus`) that stays: it is made again whenever it is lost, with its subscriptions.
#
# Nothing that NATS raises leaves this module, only errors of Waypost. The bus carries and stores nothing: what is sent while
# there is no connection is refused, so that nothing old goes out later.

try:
    from nats.aio.client import PING_PROTO, Client
    from nats.aio.msg import Msg
    from nats.errors import Error as NatsError
except ImportError as error:
    raise ConfigurationError(
        "The bus needs the package nats-py.", path="bus", hint="Install it with `pip install 'waypost[bus]'`."
    ) from error

log = logging.getLogger("waypost.transports")

BusCallback: TypeAlias = Callable[[bytes, str], Awaitable[None]]  # a message, and the inbox of who sent it

_FAILURES = (NatsError, OSError, TimeoutError)


class _NatsClient(Client):
    def show_key(self, public: str | None) -> None:
        """The key of a user, where no JWT names it."""
        self._public_nkey = public

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        """Behind what still waits to be written. The library sends it past that, and its answer would say nothing of a
        message or a subscription that was made just before."""
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(PING_PROTO)
        await self._flush_pending()


class BusConnection:
    def __init__(self, url: str, came_back: Callable[[], Awaitable[None]], login: BusCredentials | None = None) -> None:
        """`url`: nats:// or tls://, with user and password where the bus asks for them; several divided by commas."""
        self._login = login or BusCredentials()
        self._servers = servers_of(url)
        self._came_back = came_back
        self._client: Client | None = None
        self._subscriptions: list[tuple[str, BusCallback, str]] = []
        self._again: asyncio.Task[None] | None = None
        self.inbox = ""

    @property
    def is_up(self) -> bool:
        return self._client is not None and self._client.is_connected

    async def open(self) -> None:
        self._client = await self._connect()
        self.inbox = self._client.new_inbox()

    async def close(self) -> None:
        client, self._client = self._client, None
        if self._again is not None:
            self._again.cancel()
        self._subscriptions.clear()
        if client is not None:
            with suppress(*_FAILURES):
                await client.close()

    async def _connect(self) -> Client:
        """Raises once every server was asked in vain: the library would go on for as long as it may."""
        client = _NatsClient()
        options, public = self._login.options()
        client.show_key(public)
        failures: list[Exception] = []
        in_vain = asyncio.Event()

        async def failed(error: Exception) -> None:
            failures.append(error)
            if len(failures) >= len(self._servers):
                in_vain.set()
            await self._failed(error)

        connecting = asyncio.ensure_future(self._begin(client, failed, options))
        giving_up = asyncio.ensure_future(in_vain.wait())
        try:
            await asyncio.wait(
                (connecting, giving_up), timeout=limits.BUS_OPEN_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if connecting.done() and connecting.exception() is None:
                return client
        finally:
            giving_up.cancel()
            connecting.cancel()
        reason = describe_failure(failures[-1] if failures else client.last_error)
        with suppress(*_FAILURES):
            await client.close()
        raise _unreachable(reason)

    async def _begin(
        self, client: Client, failed: Callable[[Exception], Awaitable[None]], options: dict[str, Any]
    ) -> None:
        with suppress(asyncio.CancelledError):
            await client.connect(
                list(self._servers),
                name="waypost",
                connect_timeout=limits.BUS_OPEN_SECONDS,
                max_reconnect_attempts=-1,
                reconnect_time_wait=1,
                ping_interval=limits.BUS_PING_SECONDS,
                error_cb=failed,
                disconnected_cb=self._lost,
                reconnected_cb=self._back,
                closed_cb=self._closed,
                **options,
            )

    async def subscribe(self, subject: str, received: BusCallback, group: str = "") -> None:
        await self._subscribe(self._up(), subject, received, group)
        self._subscriptions.append((subject, received, group))

    async def _subscribe(self, client: Client, subject: str, received: BusCallback, group: str) -> None:
        async def take(message: Msg) -> None:
            await received(message.data, message.reply)

        try:
            await client.subscribe(
                subject,
                queue=group,
                cb=take,
                pending_msgs_limit=limits.BUS_PENDING,
                pending_bytes_limit=limits.BUS_PENDING_BYTES,
            )
        except _FAILURES as error:
            raise _unreachable(describe_failure(error)) from None

    async def send(self, subject: str, data: bytes, *, reply: str = "", headers: dict[str, str] | None = None) -> None:
        try:
            await self._up().publish(subject, data, reply=reply, headers=headers)
        except _FAILURES as error:
            raise _unreachable(describe_failure(error)) from None

    async def settle(self) -> None:
        """Until the bus has taken what was sent."""
        try:
            await self._up().flush(limits.BUS_OPEN_SECONDS)
        except _FAILURES as error:
            raise _unreachable(describe_failure(error)) from None
        self._up()

    def _up(self) -> Client:
        if self._client is None or not self._client.is_connected:
            raise _unreachable("there is no connection")
        return self._client

    # --- What NATS tells -------------------------------------------------------------------------

    async def _failed(self, error: Exception) -> None:
        """Most of it is told where it matters; what the bus forbids is told nowhere else."""
        is_denied = "permissions violation" in str(error).lower()
        log.log(logging.WARNING if is_denied else logging.DEBUG, "bus: %s", error)

    async def _lost(self) -> None:
        if self._client is not None and self._again is None:
            log.warning("bus: the connection is lost; it is tried again until it is back")

    async def _closed(self) -> None:
        """The bus turned us out, as when its users change; the library gives up then."""
        if self._client is not None and self._again is None:
            self._again = asyncio.get_running_loop().create_task(self._come_again())

    async def _come_again(self) -> None:
        while True:
            await asyncio.sleep(limits.BUS_RECONNECT_SECONDS)
            try:
                client = await self._connect()
            except WaypostError as error:
                log.debug("bus: %s", error)
                continue
            if await self._resume(client):
                self._client, self._again = client, None
                await self._back()
                return
            await client.close()

    async def _resume(self, client: Client) -> bool:
        try:
            for subject, received, group in self._subscriptions:
                await self._subscribe(client, subject, received, group)
        except WaypostError as error:
            log.debug("bus: %s", error)
            return False
        return True

    async def _back(self) -> None:
        log.info("bus: the connection is back")
        try:
            await self._came_back()
        except WaypostError as error:
            log.warning("bus: %s", error)


def _unreachable(reason: str) -> Unavailable:
    told = reason.removeprefix("nats: ").rstrip(".")
    return Unavailable(
        f"The bus cannot be used: {told}.",
        path="bus",
        hint="Is it running, is its address right, and who are you there: user and password, or bus_creds, bus_nkey, bus_token?",
    )

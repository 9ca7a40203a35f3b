"""Sends the requests of a run, within its bounds: one origin, no redirects, limited requests, bytes and time.

Every exchange is recorded. An identical request is sent once as long as nothing was written since.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2
import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from waypost import __version__, limits
from waypost.conformance.answer import ProbeAnswer, shorten
from waypost.conformance.report import ProbeExchange, ProbeRequest, RunBounds
from waypost.conformance.suite import MALFORMED, Untestable, Violation, expect
from waypost.errors import InvalidParameter, Unavailable
from waypost.model.json import dump_json
from waypost.settings import is_loopback

USER_AGENT = f"Waypost/{__version__} (conformance check)"

_DEFAULT_PORTS = {"http": 80, "https": 443}
_TOO_MANY = 429
_RETRYABLE = (_TOO_MANY, 503)
_READ_BYTES = 64 * limits.KIB
_SECRET = re.compile(r"(?<=[Bb]earer )\S+")


class ProbeTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The one origin that is probed, and the path below which its services are."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> ProbeTarget:
        """Parse the URL of a service.

        Args:
            url: An http or https URL; `host:port` means http on this machine, else https.

        Raises:
            InvalidParameter: It is no such URL.
        """
        text = url if "://" in url else f"{'http' if _names_loopback(url) else 'https'}://{url}"
        try:
            parts = urlsplit(text)
            port = parts.port or _DEFAULT_PORTS.get(parts.scheme.lower(), 0)
        except ValueError:
            raise _invalid_url(url, "it cannot be parsed") from None
        if parts.scheme.lower() not in _DEFAULT_PORTS or not parts.hostname:
            raise _invalid_url(url, "its scheme is not http or https")
        if parts.username or parts.password:
            raise _invalid_url(url, "it holds credentials")
        if parts.query or parts.fragment:
            raise _invalid_url(url, "it has a query or a fragment")
        if any(char <= " " or char > "~" for char in parts.netloc + parts.path):
            raise _invalid_url(url, "it holds characters that must be percent-encoded")
        return cls(scheme=parts.scheme.lower(), host=parts.hostname, port=port, path=parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    def find_path(self, url: str) -> str | None:
        """The path and query of a URL, absolute or relative, if it is at this origin; else None."""
        try:
            parts = urlsplit(urljoin(f"{self.origin}/", url))
            port = parts.port
        except ValueError:
            return None
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        if scheme != self.scheme or parts.hostname != self.host or (port or _DEFAULT_PORTS[scheme]) != self.port:
            return None
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return None if any(char <= " " or char > "~" for char in path) else path


def _names_loopback(address: str) -> bool:
    host = address.partition("/")[0].rpartition(":")[0] or address.partition("/")[0]
    return is_loopback(host.strip("[]"))


def _invalid_url(url: str, reason: str) -> InvalidParameter:
    return InvalidParameter(
        f"{shorten(url)!r} cannot be checked: {reason}.", path="url", hint="Give an address such as https://host/path."
    )


class ProbeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a run reaches its target and what it may use."""

    token: str | None = None
    write: bool = False
    request_seconds: float = limits.CONFORMANCE_REQUEST_SECONDS
    bounds: RunBounds = RunBounds(
        requests=limits.CONFORMANCE_REQUESTS,
        websockets=limits.CONFORMANCE_SOCKETS,
        bytes=limits.CONFORMANCE_TOTAL_BYTES,
        seconds=limits.CONFORMANCE_TOTAL_SECONDS,
    )


class Prober:
    """Sends requests to one origin and records them. `places` is where checks keep what they found (paths, agents)."""

    def __init__(
        self, target: ProbeTarget, options: ProbeOptions, client: httpx2.AsyncClient, tls: ssl.SSLContext
    ) -> None:
        self.target = target
        self.options = options
        self.notes: list[str] = []
        self.places: dict[str, Any] = {}
        self.faults_in_a_row = 0
        self._client = client
        self._tls = tls
        self._started = time.monotonic()
        self._requests = self._sockets = self._bytes = 0
        self._waited = 0.0
        self._answers: dict[tuple[object, ...], ProbeAnswer] = {}
        self._recorded: list[ProbeAnswer] = []
        self._cleanups: list[Callable[[], Awaitable[str]]] = []
        self._is_cleaning = self._is_throttled = False

    # --- What the run has used -------------------------------------------------------------------

    def used(self) -> RunBounds:
        return RunBounds(
            requests=self._requests,
            websockets=self._sockets,
            bytes=self._bytes,
            seconds=round(time.monotonic() - self._started, 1),
        )

    def _remaining_seconds(self) -> float:
        reserved = 0.0 if self._is_cleaning else limits.CONFORMANCE_CLEANUP_SECONDS
        return self.options.bounds.seconds - reserved - (time.monotonic() - self._started)

    def _require_budget(self) -> None:
        bounds = self.options.bounds
        extra = limits.CONFORMANCE_CLEANUP_REQUESTS if self._is_cleaning else 0
        if self._requests >= bounds.requests + extra:
            raise Untestable("bound", f"The run has sent {bounds.requests} requests, which is its bound.")
        if self._bytes >= bounds.bytes and not self._is_cleaning:
            raise Untestable("bound", f"The run has read {bounds.bytes} bytes, which is its bound.")
        if self._is_throttled and not self._is_cleaning:
            raise Untestable("bound", "The service limits its callers, and the run has waited as long as it may.")
        if self._remaining_seconds() <= 0:
            raise Untestable("bound", f"The run has taken {bounds.seconds:g} seconds, which is its bound.")

    # --- Recording ---------------------------------------------------------------------------------

    def start_check(self) -> None:
        self._recorded = []

    def exchanges(self) -> tuple[ProbeExchange, ...]:
        """The last exchanges since `start_check`."""
        return tuple(answer.exchange() for answer in self._recorded[-limits.CONFORMANCE_EXCHANGES :])

    def last_answer(self) -> ProbeAnswer:
        """The exchange that was recorded last."""
        return self._recorded[-1]

    def record(self, answer: ProbeAnswer) -> None:
        """Count an exchange of an earlier check as evidence of this one."""
        self._recorded.append(answer)

    # --- Requests ----------------------------------------------------------------------------------

    @property
    def has_token(self) -> bool:
        return self.options.token is not None

    def url(self, path: str) -> str:
        return self.target.origin + path

    async def get(self, path: str, *, anonymous: bool = False, fresh: bool = False, **headers: str) -> ProbeAnswer:
        """GET a path of the origin. Names of headers are written with underscores."""
        return await self.request("GET", path, headers=headers, anonymous=anonymous, fresh=fresh)

    async def post(self, path: str, value: Any, *, anonymous: bool = False, **headers: str) -> ProbeAnswer:
        """POST a value as JSON (bytes: as they are) to read something: it changes nothing at a correct service."""
        return await self.request("POST", path, body=value, headers=headers, anonymous=anonymous)

    async def write(
        self, method: str, path: str, value: Any = None, *, anonymous: bool = False, **headers: str
    ) -> ProbeAnswer:
        """Send a request that changes something. Later reads are sent again."""
        if not (self.options.write or self._is_cleaning):
            raise Untestable("needs_write", "Needs a check that changes something: run with --write.")
        answer = await self.request(method, path, body=value, headers=headers, anonymous=anonymous, fresh=True)
        self._answers.clear()
        return answer

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        anonymous: bool = False,
        fresh: bool = False,
    ) -> ProbeAnswer:
        content = body if isinstance(body, bytes) else b"" if body is None else dump_json(body)
        fields = {name.replace("_", "-").title(): value for name, value in (headers or {}).items()}
        if content:
            fields.setdefault("Content-Type", "application/json")
        key = (method, path, tuple(sorted(fields.items())), content, anonymous)
        answer = None if fresh else self._answers.get(key)
        if answer is None:
            answer = await self._send_politely(method, path, fields, content, anonymous)
            self._answers[key] = answer
        self._recorded.append(answer)
        return answer

    async def _send_politely(
        self, method: str, path: str, headers: dict[str, str], content: bytes, anonymous: bool
    ) -> ProbeAnswer:
        """Send; if the service asks to come back later, do so once, within the bound on waiting."""
        answer = await self._send(method, path, headers, content, anonymous)
        if answer.status not in _RETRYABLE:
            return answer
        pause = answer.header("retry-after") or ""
        seconds = int(pause) if pause.isdecimal() and len(pause) < 6 else None
        if seconds is None or self._waited + seconds > limits.CONFORMANCE_WAITS_SECONDS:
            self._recorded.append(answer)
            self._is_throttled = answer.status == _TOO_MANY
            raise Untestable("bound", f"{answer.name} answered {answer.status}: the service limits its callers.")
        self._waited += seconds
        await asyncio.sleep(min(seconds, max(0.0, self._remaining_seconds())))
        return await self._send(method, path, headers, content, anonymous)

    async def _send(
        self, method: str, path: str, headers: dict[str, str], content: bytes, anonymous: bool
    ) -> ProbeAnswer:
        self._require_budget()
        self._requests += 1
        sent = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity", "Accept": "*/*"} | headers
        if self.options.token is not None and not anonymous:
            sent.setdefault("Authorization", f"Bearer {self.options.token}")
        request = ProbeRequest(
            method=method,
            url=shorten(self.url(path), limits.CONFORMANCE_EXCERPT_CHARS),
            headers={name: shorten(_SECRET.sub("…", value), 300) for name, value in sent.items()},
            body=shorten(content[: 4 * limits.CONFORMANCE_EXCERPT_CHARS].decode("utf-8", "replace"), 1000),
        )
        answer = await self._exchange(request, path, sent, content)
        self.faults_in_a_row = self.faults_in_a_row + 1 if answer.error else 0
        return answer

    async def _exchange(self, request: ProbeRequest, path: str, headers: dict[str, str], content: bytes) -> ProbeAnswer:
        seconds = min(self.options.request_seconds, max(0.1, self._remaining_seconds()))
        try:
            async with asyncio.timeout(seconds):
                return await self._stream(request, path, headers, content)
        except TimeoutError:
            return ProbeAnswer(request, error=f"no complete answer within {seconds:g} seconds")
        except httpx2.TimeoutException:
            return ProbeAnswer(request, error=f"no complete answer within {seconds:g} seconds")
        except (httpx2.HTTPError, ssl.SSLError, UnicodeError) as error:
            return ProbeAnswer(request, error=f"no valid answer ({shorten(str(error) or type(error).__name__)})")

    async def _stream(self, request: ProbeRequest, path: str, headers: dict[str, str], content: bytes) -> ProbeAnswer:
        # The request target is sent as it is: a client that normalises paths could not send malformed ones.
        async with self._client.stream(
            request.method,
            f"{self.target.origin}/",
            headers=headers,
            content=content or None,
            extensions={"target": path.encode("ascii")},
        ) as response:
            self._client.cookies.clear()
            fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw]
            body = bytearray()
            async for chunk in response.aiter_raw(_READ_BYTES):
                body += chunk
                self._bytes += len(chunk)
                if len(body) > limits.CONFORMANCE_ANSWER_BYTES or self._bytes > self.options.bounds.bytes:
                    return ProbeAnswer(request, response.status_code, fields, bytes(body[:4096]), _too_long(len(body)))
            if len(fields) > limits.CONFORMANCE_HEADER_COUNT:
                return ProbeAnswer(request, response.status_code, fields[:20], bytes(body), "too many header fields")
            return ProbeAnswer(request, response.status_code, fields, bytes(body))

    # --- WebSockets --------------------------------------------------------------------------------

    @asynccontextmanager
    async def socket(
        self, path: str, *, subprotocol: str | None = None, anonymous: bool = False
    ) -> AsyncIterator[SocketProbe]:
        """A WebSocket to a path of the origin. If the upgrade fails, the answer of the `SocketProbe` says why."""
        self._require_budget()
        if self._sockets >= self.options.bounds.websockets:
            raise Untestable("bound", f"The run has opened {self._sockets} WebSockets, which is its bound.")
        self._sockets += 1
        headers = {"User-Agent": USER_AGENT}
        if self.options.token is not None and not anonymous:
            headers["Authorization"] = f"Bearer {self.options.token}"
        probe = SocketProbe(self.url(path), subprotocol, self.options.request_seconds)
        async with AsyncExitStack() as stack:
            try:
                probe.connection = await stack.enter_async_context(self._connect(path, subprotocol, headers))
            except InvalidStatus as refusal:
                probe.status = refusal.response.status_code
            except (OSError, TimeoutError, InvalidHandshake, WebSocketException, ValueError) as error:
                probe.error = f"no WebSocket ({shorten(str(error) or type(error).__name__)})"
            self.faults_in_a_row = self.faults_in_a_row + 1 if probe.error else 0
            try:
                yield probe
            finally:
                self._recorded.append(probe.answer())

    def _connect(self, path: str, subprotocol: str | None, headers: dict[str, str]) -> connect:
        # `host` and `port` are given explicitly: the library then refuses redirects to another origin.
        scheme = "wss" if self.target.scheme == "https" else "ws"
        return connect(
            f"{scheme}://{self.target.authority}{path}",
            subprotocols=[Subprotocol(subprotocol)] if subprotocol else None,
            additional_headers=headers,
            user_agent_header=None,
            proxy=None,
            compression=None,
            open_timeout=self.options.request_seconds,
            close_timeout=0.5,
            max_size=limits.MIB,
            max_queue=4,
            host=self.target.host,
            port=self.target.port,
            ssl=self._tls if scheme == "wss" else None,
        )

    # --- Cleanup -----------------------------------------------------------------------------------

    def clean_up_by(self, action: Callable[[], Awaitable[str]]) -> None:
        """Run an action at the end, however the run ends. It returns what could not be removed, or an empty text."""
        self._cleanups.append(action)

    async def clean_up(self) -> None:
        self._is_cleaning = True
        while self._cleanups:
            action = self._cleanups.pop()
            try:
                left = await action()
            except Untestable as refusal:
                left = refusal.reason
            except (Violation, *MALFORMED) as fault:
                left = shorten(str(fault) or type(fault).__name__)
            if left:
                self.notes.append(f"Cleanup: {left}")

    async def require_reachable(self) -> None:
        """Send a first request.

        Raises:
            Unavailable: Nothing answers at this address.
        """
        answer = await self.get(self.target.path or "/", accept="text/html, */*;q=0.5")
        if answer.error and answer.status is None:
            raise Unavailable(
                f"{self.target.origin} cannot be checked: {answer.error}.",
                hint="Is the service running, and is this its address?",
            )
        place = answer.header("location")
        if place is not None and answer.status in (301, 302, 303, 307, 308):
            self.notes.append(f"{answer.name} redirects to {shorten(place)}. Redirects are not followed.")


def _too_long(byte_count: int) -> str:
    return f"the body does not end within {byte_count} bytes"


class SocketProbe:
    """One WebSocket, and what was sent and received on it. `status` is that of a refused upgrade."""

    def __init__(self, url: str, subprotocol: str | None, seconds: float) -> None:
        self.connection: Any = None
        self.status: int | None = None
        self.error = ""
        self.close_code: int | None = None
        self._url = url
        self._subprotocol = subprotocol
        self._seconds = seconds
        self._sent: list[str] = []
        self._received: list[str] = []

    @property
    def is_open(self) -> bool:
        return self.connection is not None

    def require_open(self) -> None:
        """The upgrade must have succeeded. If credentials were refused, nothing can be said."""
        if self.status in (401, 403):
            raise Untestable(
                "needs_token", f"The WebSocket {self._url} answered {self.status}: credentials are needed."
            )
        expect(not self.error, f"{self._url}: {self.error}")
        expect(self.is_open, f"The WebSocket {self._url} answered {self.status}, expected 101.")

    async def send(self, message: str | bytes) -> None:
        self._sent.append(_shown(message))
        try:
            async with asyncio.timeout(self._seconds):
                await self.connection.send(message)
        except ConnectionClosed as closed:
            self._note_close(closed)
        except TimeoutError:
            self.error = f"a message could not be sent within {self._seconds:g} seconds"

    async def receive(self) -> str | bytes | None:
        """The next message; None if the other side closed, or sent nothing in time."""
        if len(self._received) >= limits.CONFORMANCE_MESSAGES:
            return None
        try:
            async with asyncio.timeout(self._seconds):
                message: str | bytes = await self.connection.recv()
        except ConnectionClosed as closed:
            self._note_close(closed)
            return None
        except TimeoutError:
            self.error = f"no message within {self._seconds:g} seconds"
            return None
        self._received.append(_shown(message))
        return message

    async def ping(self) -> bool:
        """Whether a ping is answered by a pong."""
        try:
            async with asyncio.timeout(self._seconds):
                await (await self.connection.ping())
        except ConnectionClosed as closed:
            self._note_close(closed)
            return False
        except TimeoutError:
            return False
        return True

    def _note_close(self, closed: ConnectionClosed) -> None:
        self.close_code = closed.rcvd.code if closed.rcvd is not None else 1006

    def answer(self) -> ProbeAnswer:
        """The whole conversation as one exchange for the report."""
        headers = {} if self._subprotocol is None else {"Sec-Websocket-Protocol": self._subprotocol}
        request = ProbeRequest(method="WEBSOCKET", url=self._url, headers=headers, body="\n".join(self._sent)[:1000])
        lines = [*self._received, *([] if self.close_code is None else [f"closed: {self.close_code}"])]
        status = 101 if self.is_open else self.status
        return ProbeAnswer(request, status, (), "\n".join(lines).encode("utf-8", "replace"), self.error)


def _shown(message: str | bytes) -> str:
    return shorten(message if isinstance(message, str) else repr(message)[2:-1], 600)

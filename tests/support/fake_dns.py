"""DNS data in memory and a web server with a certificate, for resolving without a name server."""

from __future__ import annotations

import asyncio
import ipaddress
import queue
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from waypost.domains.ports import DnsLookup, LookupOutcome, RecordType, SecurityState
from waypost.net.address_policy import Address, AddressPolicy
from waypost.net.fetcher import SafeFetcher
from waypost.protocols.adp.codec import key_fingerprint


class Zones:
    """`Dns` of domains/ports.py. Names that were not set do not exist; each lookup is one round trip."""

    def __init__(self, security: SecurityState = "secure") -> None:
        self.security: SecurityState = security
        self.asked: list[tuple[str, str]] = []
        self._answers: dict[tuple[str, str], DnsLookup] = {}

    def set(
        self, name: str, kind: RecordType, *records: str, security: SecurityState | None = None, ttl: int = 300
    ) -> None:
        """Set records in zone file form."""
        data = tuple(
            dns.rdata.from_text(
                dns.rdataclass.IN, dns.rdatatype.from_text(kind), text, origin=dns.name.root, relativize=False
            ).to_wire()
            for text in records
        )
        self.set_wire(name, kind, *data, security=security, ttl=ttl)

    def set_wire(
        self, name: str, kind: RecordType, *data: bytes | None, security: SecurityState | None = None, ttl: int = 300
    ) -> None:
        found = tuple(each for each in data if each is not None)
        self._answers[name, kind] = _lookup(name, kind, "found", security or self.security, records=found, ttl=ttl)

    def set_cname(self, name: str, target: str, kind: RecordType) -> None:
        """Set an alias: a lookup of the name returns the records of the target, with its owner name."""
        there = self._answers[target, kind]
        self._answers[name, kind] = msgspec.structs.replace(there, name=name, owner=target)

    def fail(self, name: str, kind: RecordType, security: SecurityState = "indeterminate") -> None:
        """Let lookups fail, or with `bogus` return a forged answer."""
        reason = "signatures do not hold" if security == "bogus" else "SERVFAIL"
        self._answers[name, kind] = _lookup(name, kind, "failed", security, reason=reason)

    def remove(self, name: str, kind: RecordType) -> None:
        self._answers.pop((name, kind), None)

    async def lookup(self, name: str, kind: RecordType, /) -> DnsLookup:
        self.asked.append((name, kind))
        await asyncio.sleep(0)
        known = self._answers.get((name, kind))
        if known is not None:
            return known
        outcome: LookupOutcome = "nodata" if any(other == name for other, _ in self._answers) else "nxdomain"
        return _lookup(name, kind, outcome, self.security)


def _lookup(name: str, kind: RecordType, outcome: LookupOutcome, security: SecurityState, **more: Any) -> DnsLookup:
    return DnsLookup(
        name=name,
        type=kind,
        outcome=outcome,
        security=security,
        owner=name,
        queries=1,
        round_trips=1,
        took_ms=1.0,
        **more,
    )


class Loopback:
    """Resolves every name to loopback."""

    async def addresses(self, name: str) -> list[Address]:
        return [ipaddress.ip_address("127.0.0.1")]


def loopback_fetcher(authority: Any) -> SafeFetcher:
    """A fetcher whose names resolve to loopback, with the test authority."""
    return SafeFetcher(AddressPolicy(("127.0.0.0/8",)), Loopback(), ca_file=authority.certificate)  # type: ignore[arg-type]


class Site:
    """A web server over TLS. `requests` lists the requested URLs."""

    def __init__(self) -> None:
        self.port = 0
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.requests: list[str] = []
        self.connections = 0
        self.sign: Callable[[str, str, int], dict[str, str]] | None = (
            None  # headers for a head, an address and a status
        )

    def put(
        self, path: str, body: Any, *, status: int = 200, kind: str = "application/vnd.adp+json", **headers: str
    ) -> bytes:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = (status, {"Content-Type": kind, **names}, data)
        return data

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            host = next(line for line in head.decode().split("\r\n") if line.lower().startswith("host:"))[5:].strip()
            self.requests.append(f"https://{host}{path}")
            status, headers, body = self.pages.get(path, (404, {}, b"no"))
            if self.sign is not None:
                headers = {**headers, **self.sign(head.decode(), self.requests[-1], status)}
            lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in headers.items())]
            writer.write(
                "\r\n".join([*lines, f"Content-Length: {len(body)}", "Connection: close", "", ""]).encode() + body
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def site(context: ssl.SSLContext) -> AsyncIterator[Site]:
    made = Site()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()  # from Python 3.12 on, wait_closed() would wait for clients that keep their connection


@contextmanager
def site_in_thread(context: ssl.SSLContext) -> Iterator[Site]:
    """The same in a thread with its own event loop, for module fixtures and for other processes."""
    started: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Event, Site]] = queue.SimpleQueue()

    async def serve() -> None:
        async with site(context) as made:
            over = asyncio.Event()
            started.put((asyncio.get_running_loop(), over, made))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    loop, over, made = started.get()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


class Identity:
    """The key of an agent and its document."""

    def __init__(self, domain: str, seed: bytes = bytes(range(32))) -> None:
        self.domain = domain
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.raw = self._key.public_key().public_bytes_raw()
        self.fingerprint = key_fingerprint(self.raw)
        self.pem = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def document(self, **identity: Any) -> dict[str, Any]:
        return {
            "protocol": "ADP/1.1",
            "identity": {
                "id": f"agent:{identity.get('domain', self.domain)}",
                "domain": self.domain,
                "name": "Alice's Agent",
                "publicKey": {"algorithm": "ed25519", "fingerprint": self.fingerprint, "full": self.pem},
                **identity,
            },
            "endpoints": {
                "wellKnown": f"https://{self.domain}/.well-known/agent.json",
                "chat": f"wss://{self.domain}/agent/chat",
            },
            "capabilities": [{"id": "chat", "name": "Conversational chat", "description": "Talks about the weather"}],
        }

    def txt(self, url: str, **more: str) -> str:
        rest = "".join(f"; {name}={value}" for name, value in more.items())
        return f'"v=ADP1.1; pk={self.fingerprint}; wk={url}{rest}"'


def states(verdicts: Iterable[Any]) -> dict[str, str]:
    return {verdict.check: verdict.state for verdict in verdicts}

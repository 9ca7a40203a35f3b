"""The development name server in the process of the test, on loopback."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import dns.asyncquery
import dns.message
import dns.tsig

from waypost.net.nameserver.responder import ZoneSet
from waypost.net.nameserver.server import Nameserver
from waypost.net.nameserver.signed_zone import SignedZone, ZoneFolder

PATIENCE_SECONDS = 60.0
EXAMPLE = """
alice 60 IN SVCB 1 . alpn="a2a,h2" port=443 key65409="agent.json"
alice 60 IN A 127.0.0.1
_agent.alice 60 IN TXT "v=ADP1.1; pk=ed25519:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw; wk=https://alice.example.test/"
*.wild 60 IN TXT "any"
alias 60 IN CNAME alice
loop 60 IN CNAME loop
out 60 IN CNAME www.example.net.
leaf.between 60 IN A 127.0.0.1
sub 60 IN NS ns.sub
ns.sub 60 IN A 127.0.0.1
safe 60 IN NS ns.sub
safe 60 IN DS 12345 13 2 0000000000000000000000000000000000000000000000000000000000000000
"""


class Running:
    def __init__(self, server: Nameserver, zone: SignedZone, folder: ZoneFolder) -> None:
        self.server = server
        self.zone = zone
        self.folder = folder

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def key(self) -> dns.tsig.Key:
        return self.folder.load_update_key()

    async def ask(self, name: str, kind: str, *, dnssec: bool = True, tcp: bool = False) -> dns.message.Message:
        query = dns.message.make_query(name, kind, want_dnssec=dnssec)
        return await self.send(query, tcp=tcp)

    async def send(self, query: dns.message.Message, *, tcp: bool = True) -> dns.message.Message:
        send = dns.asyncquery.tcp if tcp else dns.asyncquery.udp
        return await send(query, "127.0.0.1", port=self.server.port, timeout=PATIENCE_SECONDS)


@asynccontextmanager
async def nameserver(
    data: Path, text: str = EXAMPLE, *, zone: str = "example.test", algorithm: str = "ed25519"
) -> AsyncIterator[Running]:
    folder = ZoneFolder(data)
    held = folder.open(zone, algorithm, time.time(), text=text)
    folder.save_anchors([held])
    server = Nameserver(ZoneSet([held]), folder.load_update_key(), time.time, folder.save)
    await server.start("127.0.0.1", 0)
    try:
        yield Running(server, held, folder)
    finally:
        await server.stop()

"""DNS over UDP, TCP, TLS and HTTPS: which responses are accepted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import pytest

from support.certificates import Authority
from support.raw_dns import RawDns, ReceivedQuery, raw_dns, truncated
from waypost import limits
from waypost.net.dns.message import DnsFailure, DnsMessage, DnsQuery
from waypost.net.dns.upstreams import UpstreamResolvers

QUESTION = DnsQuery(name=dns.name.from_text("agent.test"), type=dns.rdatatype.TXT)
SHORT = 0.3


def answer_data(message: DnsMessage) -> list[bytes]:
    return [row.to_wire() or b"" for rrset in message.answer for row in rrset]


@asynccontextmanager
async def asking(
    *servers: str, ca_file: Path | None = None, try_seconds: float = 20
) -> AsyncIterator[UpstreamResolvers]:
    upstreams = UpstreamResolvers(",".join(servers), ca_file=ca_file, try_seconds=try_seconds)
    try:
        yield upstreams
    finally:
        await upstreams.aclose()


async def refused(server: str, reason: str, **how: object) -> DnsFailure:
    async with asking(server, **how) as upstreams:  # type: ignore[arg-type]
        with pytest.raises(DnsFailure) as failure:
            await upstreams.send(QUESTION)
    assert failure.value.details == {"reason": reason}
    return failure.value


# --- UDP ------------------------------------------------------------------------------------------


async def test_packets_that_do_not_match_the_query_are_ignored() -> None:
    """Another id, another question, not a response: anyone can send those."""

    def behave(asked: ReceivedQuery) -> None:
        other_id = asked.response("forged")
        other_id.id ^= 1
        asked.send(other_id.to_wire())
        other_name = asked.response("forged")
        other_name.question[0].name = dns.name.from_text("other.test")
        asked.send(other_name.to_wire())
        asked.send(asked.data)
        asked.send(b"")
        asked.answer("true")

    async with raw_dns(behave) as server, asking(server.address) as upstreams:
        assert answer_data(await upstreams.send(QUESTION)) == [b"\x04true"]
    assert len(server.asked) == 1


async def test_an_answer_from_another_address_does_not_arrive() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as elsewhere:
        elsewhere.bind(("127.0.0.1", 0))

        def behave(asked: ReceivedQuery) -> None:
            elsewhere.sendto(asked.response("forged").to_wire(), asked.source)
            asked.answer("true")

        async with raw_dns(behave) as server, asking(server.address) as upstreams:
            assert answer_data(await upstreams.send(QUESTION)) == [b"\x04true"]


async def test_silence_is_a_failure_after_a_second_try_with_another_id_and_port() -> None:
    async with raw_dns(lambda asked: None) as server:
        await refused(server.address, "timed_out", try_seconds=SHORT)
    assert len(server.asked) == limits.DNS_TRIES
    assert len({asked.source for asked in server.asked}) == limits.DNS_TRIES


async def test_ids_and_ports_cannot_be_foreseen() -> None:
    async with raw_dns(lambda asked: asked.answer("x")) as server, asking(server.address) as upstreams:
        for _ in range(24):
            await upstreams.send(QUESTION)
    assert len({asked.message.id for asked in server.asked}) > 20
    assert len({asked.source[1] for asked in server.asked}) > 12


async def test_a_query_sets_the_do_and_cd_bits() -> None:
    async with raw_dns(lambda asked: asked.answer("x")) as server, asking(server.address) as upstreams:
        await upstreams.send(QUESTION)
    query = server.asked[0].message
    assert query.ednsflags & dns.flags.DO
    assert query.flags & dns.flags.CD
    assert query.flags & dns.flags.RD
    assert query.payload == limits.DNS_UDP_BYTES == 1232


@pytest.mark.parametrize("rest", [b"", b"\xff" * 10, b"\x81\x80\x00\x01\xff\xff\x00\x00\x00\x00\xc0\x0c"])
async def test_bytes_that_are_no_message_are_a_failure(rest: bytes) -> None:
    async with raw_dns(lambda asked: asked.send(asked.data[:2] + rest)) as server:
        await refused(server.address, "malformed")


async def test_a_closed_port_fails_at_once() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    await refused(f"127.0.0.1:{port}", "refused")


@pytest.mark.parametrize("repeats", [True, False])
async def test_a_server_without_edns_is_queried_again_without_it(repeats: bool) -> None:
    def behave(asked: ReceivedQuery) -> None:
        if asked.message.edns < 0:
            asked.answer("old")
            return
        response = dns.message.make_response(asked.message)
        response.use_edns(False)
        response.set_rcode(dns.rcode.FORMERR)
        if not repeats:
            response.question.clear()
        asked.send(response.to_wire())

    async with raw_dns(behave) as server, asking(server.address) as upstreams:
        assert answer_data(await upstreams.send(QUESTION)) == [b"\x03old"]


@pytest.mark.parametrize("code", [dns.rcode.SERVFAIL, dns.rcode.REFUSED])
async def test_a_server_that_fails_is_followed_by_the_next_one(code: dns.rcode.Rcode) -> None:
    def behave(asked: ReceivedQuery) -> None:
        response = asked.response()
        response.set_rcode(code)
        asked.send(response.to_wire())

    async with (
        raw_dns(behave) as bad,
        raw_dns(lambda asked: asked.answer("good")) as good,
        asking(bad.address, good.address) as upstreams,
    ):
        message = await upstreams.send(QUESTION)
        assert (answer_data(message), message.server) == ([b"\x04good"], good.address)
        assert (await upstreams.send(QUESTION, perspective=0)).rcode == code


# --- TCP ------------------------------------------------------------------------------------------


async def test_an_answer_of_sixty_thousand_bytes_comes_over_tcp() -> None:
    texts = [f"{number:03}" + "x" * 250 for number in range(230)]

    def behave(asked: ReceivedQuery) -> None:
        truncated(asked) if asked.over == "datagram" else asked.answer(*texts)

    async with raw_dns(behave) as server, asking(server.address) as upstreams:
        message = await upstreams.send(QUESTION)
    assert sum(map(len, answer_data(message))) > 55_000
    assert (message.queries, message.round_trips) == (2, 2)


@pytest.mark.parametrize("answer", [b"", b"\x00", b"truncated"])
async def test_a_stream_that_ends_early_or_is_cut_off_again_is_a_failure(answer: bytes) -> None:
    def behave(asked: ReceivedQuery) -> None:
        if asked.over == "datagram" or answer == b"truncated":
            truncated(asked)
        else:
            asked.send(answer)

    async with raw_dns(behave) as server:
        await refused(server.address, "refused" if answer == b"" else "malformed")


# --- TLS and HTTPS --------------------------------------------------------------------------------


@pytest.fixture
def secured(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def over_tls(server: RawDns, name: str = "dns.test") -> str:
    return f"tls://{server.address}#{name}"


async def test_many_questions_share_one_connection_over_tls_whatever_the_order_of_answers(secured: Authority) -> None:
    waiting: list[ReceivedQuery] = []

    def behave(asked: ReceivedQuery) -> None:
        waiting.append(asked)
        if len(waiting) == 10:
            for one in reversed(waiting):
                one.answer(one.message.question[0].name.labels[0].decode())

    questions = [DnsQuery(name=dns.name.from_text(f"a{number}.test"), type=dns.rdatatype.TXT) for number in range(10)]
    async with (
        raw_dns(behave, secured.server_context("dns.test")) as server,
        asking(over_tls(server), ca_file=secured.certificate) as upstreams,
    ):
        messages = await asyncio.gather(*map(upstreams.send, questions))
    assert [answer_data(message) for message in messages] == [[f"\x02a{number}".encode()] for number in range(10)]
    assert server.streams == 1


async def test_a_connection_that_was_closed_is_opened_again(secured: Authority) -> None:
    def behave(asked: ReceivedQuery) -> None:
        asked.send(b"") if len(server.asked) == 2 else asked.answer("x")

    async with (
        raw_dns(behave, secured.server_context("dns.test")) as server,
        asking(over_tls(server), ca_file=secured.certificate) as upstreams,
    ):
        first = await upstreams.send(QUESTION)
        assert answer_data(await upstreams.send(QUESTION)) == [b"\x01x"]
    assert server.streams == 2
    assert first.round_trips == 3  # a handshake of TCP, one of TLS, and the question


async def test_a_resolver_with_an_invalid_certificate_is_not_queried(secured: Authority) -> None:
    async with raw_dns(lambda asked: asked.answer("x"), secured.server_context("other.test")) as server:
        await refused(over_tls(server), "tls", ca_file=secured.certificate)
        await refused(over_tls(server, "other.test"), "tls")  # by an authority that is not configured
        assert not server.asked


async def test_questions_go_over_https(secured: Authority) -> None:
    paths: list[str] = []
    async with (
        doh(secured, paths, answer=lambda asked: asked.response("doh").to_wire()) as url,
        asking(url, ca_file=secured.certificate) as upstreams,
    ):
        assert answer_data(await upstreams.send(QUESTION)) == [b"\x03doh"]
        assert answer_data(await upstreams.send(QUESTION)) == [b"\x03doh"]
    assert paths == ["POST /dns-query HTTP/1.1"] * 2


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [(b"no message", 200, "malformed"), (b"", 500, "status"), (b"x" * 70_000, 200, "malformed")],
)
async def test_an_invalid_dns_over_https_response_is_a_failure(
    secured: Authority, body: bytes, status: int, reason: str
) -> None:
    async with doh(secured, [], answer=lambda asked: body, status=status) as url:
        await refused(url, reason, ca_file=secured.certificate)


async def test_an_https_resolver_with_an_invalid_certificate_is_not_queried(secured: Authority) -> None:
    paths: list[str] = []
    async with doh(secured, paths, answer=lambda asked: asked.response("doh").to_wire()) as url:
        await refused(url, "tls")
    assert not paths


@asynccontextmanager
async def doh(authority: Authority, paths: list[str], *, answer: object, status: int = 200) -> AsyncIterator[str]:
    assert callable(answer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                paths.append(head.splitlines()[0])
                length = next(
                    int(line[16:]) for line in head.splitlines() if line.lower().startswith("content-length: ")
                )
                body = answer(ReceivedQuery(await reader.readexactly(length), "https", None, lambda data: None))
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=authority.server_context("127.0.0.1"))
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/dns-query"
    finally:
        server.close()

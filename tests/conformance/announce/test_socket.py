"""The announce protocol over a WebSocket (announce.md §6.5, §8, §9, §11; THREATS W1, W2, W5–W10)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from support.announce import AGENT_ID, announce, announcement, body, key
from support.service import NOW, profile
from support.transports import eventually
from support.websocket_clients import Session, SocketBench, socket_service
from waypost import limits
from waypost.net.clock import SystemClock
from waypost.server.http.uvicorn_hooks import WebSocketProtocol
from waypost.trust.document_signatures import canonicalize

ONE, TWO, OTHER = key("one"), key("two"), key("other")
SECOND_ID = "7b0c6a52-41f1-4c66-9a0e-0f5d2ce0a511"
THIRD_ID = "d2b7c9a4-92a4-4b8e-8a53-1c6f0f6a7e22"


def message(seq: int = 1, at: float = NOW, **more: Any) -> dict[str, Any]:
    return announcement(more.pop("signer", ONE), seq=seq, at=at, **more)


def announced_members(answer: dict[str, Any]) -> dict[str, Any]:
    """The members of a Response that repeat the announcement."""
    return {name: answer[name] for name in ("protocol_version", "agent", "signature")}


async def refused(bench: SocketBench, token: str | None, **more: Any) -> int:
    with pytest.raises(InvalidStatus) as told:
        await bench.session_with(token, **more)
    return told.value.response.status_code


# --- The session ----------------------------------------------------------------------------------


@pytest.mark.req("ANN-36")
async def test_agents_announce_and_a_query_streams_exactly_those_that_fit(tmp_path: Path) -> None:
    """Criterion 2."""
    async with socket_service(tmp_path) as bench:
        alice, carol = await bench.session("alice"), await bench.session("carol", "discover:read")
        assert alice.connection.subprotocol == "agent-discovery"
        first, second = message(), message(agent_id=SECOND_ID, signer=TWO, capabilities={"metrics": "1.0"})
        third = message(agent_id=THIRD_ID, signer=OTHER, capabilities={"logs": "1.0"})
        for each in (first, second, third):
            told = await alice.announce(each)
            assert (told["status"], told["agent_id"]) == ("done", each["agent"]["agent_id"])
            assert (told["expires_at"], told["ttl"]) == ("2026-05-28T20:28:40Z", 120)
        answers, ended = await carol.query("metrics", query_id="q1")
        assert ended == {"protocol_version": "v1.0", "status": "done", "query_id": "q1", "count": 2}
        assert {canonicalize(each["agent"]) for each in answers} == {
            canonicalize(first["agent"]),
            canonicalize(second["agent"]),
        }
        assert all(each["matched"] is True and each["query_id"] == "q1" for each in answers)
        assert announced_members(next(each for each in answers if each["agent"]["agent_id"] == AGENT_ID)) == first
        assert await carol.query("nothing-like-it") == (
            [],
            {"protocol_version": "v1.0", "status": "done", "count": 0},
        )


@pytest.mark.req("ANN-36")
async def test_a_text_message_is_read_and_the_type_byte_must_agree_with_the_shape(tmp_path: Path) -> None:
    async with socket_service(tmp_path) as bench:
        alice = await bench.session()
        await alice.connection.send(json.dumps({**message(), "ttl": 60}))
        assert (await alice.status())["status"] == "done"
        await alice.send(2, message(2))
        assert (await alice.status())["code"] == "ErrMalformedPayload"
        for data in (b"", b"\x09{}", b"\x01", b"\x01{", b"\x03" + body(message(3))):
            await alice.connection.send(data)
            told = await alice.status()
            assert (told["status"], told["code"]) == ("error", "ErrMalformedPayload")
            assert told["message"]
        assert (await alice.query("metrics"))[1]["count"] == 1


@pytest.mark.req("ANN-36", "ANN-10", "ANN-3")
async def test_unsigned_or_altered_announcements_are_dropped(tmp_path: Path) -> None:
    """Criterion 1 and 4."""
    async with socket_service(tmp_path) as bench:
        alice, mallory = await bench.session("alice"), await bench.session("mallory")
        assert (await alice.announce(message()))["status"] == "done"
        altered = message(2)
        altered["agent"]["transport"]["endpoint"] = "6.6.6.6:1"
        unsigned = message(agent_id=SECOND_ID)
        del unsigned["signature"]
        for wrong, code in (
            (altered, "ErrAuth"),
            (unsigned, "ErrAuth"),
            (message(2, signer=OTHER), "ErrDuplicateID"),
            (message(2, at=NOW - 301), "ErrAuth"),
        ):
            told = await mallory.announce(wrong)
            assert (told["status"], told["code"]) == ("error", code), told
        answers, _ = await alice.query()
        assert [announced_members(each) for each in answers] == [message()]


@pytest.mark.req("ANN-36", "ANN-21")
async def test_an_agent_that_no_rule_admits_is_refused_until_one_does(tmp_path: Path) -> None:
    """Criterion 6."""
    async with socket_service(tmp_path, trust_mode="allowlist-tofu") as bench:
        alice = await bench.session()
        told = await alice.announce(message())
        assert (told["code"], told["reason"], told["retry_after"]) == ("ErrForbidden", "not_allowed", 300)
        await bench.bench.admin().post("/api/v1/allow", json={"rule": AGENT_ID})
        assert (await alice.announce(message()))["status"] == "done"


@pytest.mark.req("ANN-36", "ANN-50", "ANN-51")
async def test_another_minor_is_accepted_and_another_major_gets_our_version(tmp_path: Path) -> None:
    """Criterion 5; P-32: the session stays open."""
    async with socket_service(tmp_path) as bench:
        alice = await bench.session()
        told = await alice.announce({**message(), "protocol_version": "v2.0"})
        assert (told["code"], told["supported"]) == ("ErrUnsupportedVersion", ["v1.1", "v1.0"])
        for version in ("v0.9", "1.0", "v1"):
            assert (await alice.announce({**message(), "protocol_version": version}))["code"] == "ErrMalformedPayload"
        assert (await alice.announce({**message(), "protocol_version": "v1.1"}))["status"] == "done"
        assert (await alice.query("*", protocol_version="v2.0"))[1]["supported"] == ["v1.1", "v1.0"]


@pytest.mark.req("ANN-36", "ANN-60")
async def test_each_message_needs_its_own_scope(tmp_path: Path) -> None:
    async with socket_service(tmp_path) as bench:
        reader, writer = await bench.session("r", "discover:read"), await bench.session("w", "discover:write")
        assert (await reader.announce(message()))["code"] == "ErrForbidden"
        assert (await writer.announce(message()))["status"] == "done"
        assert (await writer.query())[1]["code"] == "ErrForbidden"
        assert (await reader.query())[1]["count"] == 1
        assert await refused(bench, None) == 401
        assert await refused(bench, "wp_no-such-token") == 401


@pytest.mark.req("ANN-60")
async def test_where_reading_is_for_all_a_session_needs_no_token_to_ask(tmp_path: Path) -> None:
    async with socket_service(tmp_path, anonymous_read=True) as bench:
        anybody = await bench.session_with(None)
        assert (await anybody.query())[1]["status"] == "done"
        assert (await anybody.announce(message()))["code"] == "ErrAuth"


@pytest.mark.req("ANN-60")
async def test_an_open_service_is_open_to_programs_and_not_to_pages_of_other_sites(tmp_path: Path) -> None:
    """W2."""
    async with socket_service(tmp_path, open=True, allowed_origins=("https://console.example",)) as bench:
        assert (await (await bench.session_with(None)).announce(message()))["status"] == "done"
        assert await refused(bench, None, headers={"Origin": "https://evil.example"}) == 403
        assert await refused(bench, None, headers={"Origin": "null"}) == 403
        await bench.session_with(None, headers={"Origin": "https://console.example"})
        await bench.session_with(None, headers={"Origin": bench.url})


@pytest.mark.req("ANN-36")
async def test_a_caller_has_a_bounded_number_of_sessions(tmp_path: Path) -> None:
    async with socket_service(tmp_path) as bench:
        opened = [await bench.session("alice") for _ in range(limits.SOCKETS_PER_PRINCIPAL)]
        assert await refused(bench, bench.bench.token("alice")) == 429
        await bench.session("bob")
        await opened[0].connection.close()
        token = bench.bench.token("alice")
        for _ in range(1200):
            try:
                await bench.session_with(token)
                return
            except InvalidStatus:
                await asyncio.sleep(0.05)
        pytest.fail("the place of a session that ended was not given to another one")


# --- Subscriptions --------------------------------------------------------------------------------


async def events(session: Session, count: int) -> list[tuple[str, str]]:
    found = []
    for _ in range(count):
        kind, told = await session.next()
        assert kind == 3, told
        found.append((told["event"], told["agent"]["agent_id"]))
    return found


@pytest.mark.req("ANN-36")
async def test_a_subscription_sends_current_agents_and_then_changes(tmp_path: Path) -> None:
    """Criterion 7: `expired` is sent once."""
    async with socket_service(tmp_path) as bench:
        alice, watcher = await bench.session("alice"), await bench.session("watcher")
        await alice.announce(message())
        there, status = await watcher.subscribe("metrics", query_id="s")
        assert [(each["event"], each["agent"]["agent_id"], each["ttl"]) for each in there] == [("added", AGENT_ID, 120)]
        assert (status["status"], status["query_id"], status["count"]) == ("subscribed", "s", 1)
        await alice.announce(message(agent_id=THIRD_ID, signer=OTHER, capabilities={"logs": "1"}))
        await alice.announce(message(agent_id=SECOND_ID, signer=TWO), ttl=10)
        await alice.announce(message(2, capabilities={"metrics": "3.0"}))
        await alice.announce(message(3, capabilities={"logs": "1.0"}))
        assert await events(watcher, 3) == [("added", SECOND_ID), ("updated", AGENT_ID), ("removed", AGENT_ID)]
        await alice.connection.close()
        bench.bench.clock.advance(11)
        kind, told = await watcher.next()
        assert (kind, told["event"], told["matched"], told["agent"]) == (3, "expired", False, {"agent_id": SECOND_ID})
        with pytest.raises(TimeoutError):
            await watcher.next(0.3)


@pytest.mark.req("ANN-37")
async def test_a_subscription_goes_on_from_its_cursor_without_gap_or_repetition(tmp_path: Path) -> None:
    async with socket_service(tmp_path) as bench:
        alice, watcher = await bench.session("alice"), await bench.session("watcher")
        _, status = await watcher.subscribe()
        await alice.announce(message())
        _, told = await watcher.next()
        await watcher.connection.close()
        await alice.announce(message(agent_id=SECOND_ID, signer=TWO))
        await alice.announce({**message(2), "action": "shutdown"})
        again = await bench.session("watcher")
        there, resumed = await again.subscribe(cursor=told["cursor"])
        assert (there, resumed["status"]) == ([], "subscribed")
        assert await events(again, 2) == [("added", SECOND_ID), ("removed", AGENT_ID)]
        earlier = await bench.session("watcher")
        await earlier.subscribe(cursor=status["cursor"])
        assert await events(earlier, 3) == [("removed", AGENT_ID), ("added", SECOND_ID), ("removed", AGENT_ID)]
        wrong = await bench.session("watcher")
        assert (await wrong.subscribe(cursor="no-cursor-of-ours"))[1]["code"] == "ErrMalformedPayload"


@pytest.mark.req("ANN-36")
async def test_hidden_agents_are_not_sent_and_leave_no_trace(tmp_path: Path) -> None:
    """W10."""
    async with socket_service(tmp_path) as bench:
        watcher = await bench.session("watcher")
        await watcher.subscribe()
        owner = bench.bench.as_("owner")
        hidden = {"Waypost-Visibility": "private"}
        assert (await owner.post("/agents", json=message(agent_id=SECOND_ID, signer=TWO), headers=hidden)).is_success
        assert (await owner.put(f"/agents/{SECOND_ID}")).status_code == 405
        assert (await announce(owner, message())).is_success
        kind, told = await watcher.next()
        assert (kind, told["agent"]["agent_id"]) == (3, AGENT_ID)
        assert set(told) == {
            *("protocol_version", "agent", "signature", "matched", "expires_at", "event", "cursor", "ttl")
        }
        assert (await watcher.query())[1]["count"] == 1


@pytest.mark.req("ANN-36")
async def test_a_session_has_a_bounded_number_of_subscriptions(tmp_path: Path) -> None:
    """W10."""
    async with socket_service(tmp_path) as bench:
        watcher = await bench.session("watcher")
        for _ in range(limits.SOCKET_SUBSCRIPTIONS):
            assert (await watcher.subscribe())[1]["status"] == "subscribed"
        assert (await watcher.subscribe())[1]["code"] == "ErrRateLimited"


@pytest.mark.req("ANN-36")
async def test_agents_of_other_dialects_are_sent_too(tmp_path: Path) -> None:
    async with socket_service(tmp_path) as bench:
        watcher = await bench.session("watcher")
        await watcher.subscribe()
        owner = bench.bench.as_("owner")
        assert (await owner.post("/api/v1/agents", json=profile())).is_success
        _, added = await watcher.next()
        assert (added["event"], added["agent"]["metadata"]["__derived"]) == ("added", "profile")
        assert (await owner.delete(f"/agents/{added['agent']['agent_id']}")).status_code == 204
        _, gone = await watcher.next()
        assert (gone["event"], gone["agent"]["agent_id"]) == ("removed", added["agent"]["agent_id"])


# --- Life of a session ----------------------------------------------------------------------------


class Hurried(WebSocketProtocol):
    ping_seconds = 0.3
    silence_seconds = 3.0


@pytest.mark.req("ANN-37")
async def test_an_idle_peer_is_pinged_and_a_silent_one_is_disconnected(tmp_path: Path) -> None:
    """W8, criterion 7."""
    async with socket_service(tmp_path, protocol=Hurried) as bench:
        quiet = await bench.session("quiet", ping_interval=None)
        silent = await bench.session("silent", ping_interval=None)
        silent.connection.transport.pause_reading()
        await eventually(lambda: bench.sockets.sessions == 1)
        assert (await quiet.query())[1]["status"] == "done"
        silent.connection.transport.resume_reading()
        assert await silent.closed() == (4408, "nothing was received for 3 seconds")


@pytest.mark.req("ANN-37")
async def test_a_session_renews_its_announcements_only_while_it_is_open(tmp_path: Path) -> None:
    """P-28, with the real clock: the shortest TTL is ten seconds."""
    clock = SystemClock()
    async with socket_service(tmp_path, clock=clock) as bench:
        alice, watcher = await bench.session("alice"), await bench.session("watcher")
        await watcher.subscribe()
        await alice.announce(message(at=clock.now()), ttl=10)
        assert await events(watcher, 2) == [("added", AGENT_ID), ("renewed", AGENT_ID)]
        await alice.connection.close()
        assert (await watcher.query())[1]["count"] == 1


@pytest.mark.req("ANN-37", "ANN-60")
async def test_a_session_ends_when_its_credential_does(tmp_path: Path) -> None:
    """W9."""
    async with socket_service(tmp_path, recheck_seconds=0.05) as bench:
        short = await bench.session_with(bench.bench.token("alice", ttl_seconds=300))
        other = await bench.session("bob")
        assert (await short.query())[1]["status"] == "done"
        bench.bench.clock.advance(400)
        code, reason = await short.closed()
        assert code == 4401
        assert "expired" in str(reason) or "Invalid token" in str(reason)
        assert (await other.query())[1]["status"] == "done"


@pytest.mark.req("ANN-37")
async def test_a_slow_reader_costs_bounded_memory_and_gets_a_cursor(tmp_path: Path) -> None:
    """W6."""
    async with socket_service(tmp_path, stall_seconds=1.0) as bench:
        slow = await bench.session("slow", max_queue=1, ping_interval=None)
        cursors = {}
        for number in range(limits.SOCKET_SUBSCRIPTIONS):
            _, status = await slow.subscribe(query_id=f"s{number}")
            cursors[f"s{number}"] = status["cursor"]
        slow.connection.transport.pause_reading()
        for number in range(120):  # sent to 32 subscriptions, more than the buffers of the system hold
            each = message(agent_id=f"{number:08x}{AGENT_ID[8:]}", metadata={"note": "n" * 3500})
            assert (await announce(bench.bench.as_("alice"), each)).is_success
        await eventually(lambda: bench.sockets.sessions == 0)
        slow.connection.transport.resume_reading()
        async for data in ended_by_closing(slow.connection):
            told = json.loads(data[1:])
            cursors[told["query_id"]] = told["cursor"]
        assert slow.connection.close_code == 1013
        words, _, cursor = str(slow.connection.close_reason).partition("; cursor=")
        assert words == "too slow"
        assert cursor in cursors.values()
        again = await bench.session("slow")
        _, resumed = await again.subscribe(cursor=cursor)
        assert resumed["status"] == "subscribed"
        _, following = await again.next()
        assert following["event"] in ("added", "updated")


async def ended_by_closing(connection: ClientConnection) -> AsyncIterator[bytes]:
    with suppress(ConnectionClosed):
        while True:
            data = await connection.recv()
            assert isinstance(data, bytes)
            yield data

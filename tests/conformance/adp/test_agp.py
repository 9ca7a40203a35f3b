"""AGP at the service (adp.md §6, §8): the handshake, what is verified of each message, and what is refused by which code."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from support.agp import ALICE, BOB, CAROL, Socket, action_of, hello_text, key_of, signed
from support.service import Bench, service
from waypost.client.peer_connection import check_chat_url
from waypost.errors import InvalidParameter
from waypost.protocols.adp.agp.messages import parse_message, verify
from waypost.trust.keys.private_key import new_private_key
from waypost.trust.keys.public_key import parse_pem


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    async with service(tmp_path_factory.mktemp("agp"), base_url="https://registry.example.net") as running:
        for agent in (ALICE, CAROL):
            pem = key_of(agent).public.pem()
            answer = await running.admin().post("/api/v1/keys", json={"agent_id": agent, "public_key": pem})
            assert answer.status_code in (200, 201), answer.text
        yield running


pytestmark = pytest.mark.asyncio(loop_scope="module")
OWN = "agent:registry.example.net"


def call(bench: Bench, **headers: str) -> Socket:
    return Socket(bench.application.app, **{"host": "registry.example.net", **headers})


@pytest.mark.req("ADP-36")
async def test_the_document_names_the_agp_endpoint(bench: Bench) -> None:
    document = (await bench.anonymous().get("/.well-known/agent.json")).json()
    assert document["identity"]["id"] == OWN
    assert document["endpoints"]["chat"] == "wss://registry.example.net/agent/chat"
    answer = await bench.anonymous().get("/agent/chat")
    assert answer.status_code == 426


@pytest.mark.req("ADP-37")
@pytest.mark.parametrize("url", ["ws://alice.example.com/agent/chat", "http://alice.example.com/", "wss:", "ftp://x/"])
async def test_only_secure_sockets_are_dialled(url: str) -> None:
    if url == "wss:":
        check_chat_url("wss://alice.example.com/agent/chat")
        check_chat_url("ws://127.0.0.1:9/agent/chat")  # while developing
    else:
        with pytest.raises(InvalidParameter):
            check_chat_url(url)


@pytest.mark.req("ADP-38", "ADP-39", "ADP-40", "ADP-41")
async def test_both_say_hello_and_then_every_message_is_signed(bench: Bench) -> None:
    now = bench.clock.now()
    document = (await bench.anonymous().get("/.well-known/agent.json")).json()
    stated = document["identity"]["publicKey"]
    key = parse_pem(stated["full"])
    async with call(bench) as socket:
        nonce = "abcdefghijklmnopqrstuv"
        opening = signed(ALICE, OWN, hello_text(ALICE, nonce=nonce), kind="system", at=now)
        socket.send(opening)
        frame = await socket.receive()
        hello = action_of(frame)
        assert hello["agent"] == OWN
        assert hello["echo"] == nonce
        assert hello["fingerprint"] == stated["fingerprint"] == key.fingerprint()
        assert json.loads(frame)["body"]["replyTo"] == json.loads(opening)["id"]
        socket.send(signed(ALICE, OWN, hello["nonce"], kind="ack", at=now))
        question = signed(ALICE, OWN, "echo good morning", at=now)
        socket.send(question)
        said = [parse_message(await socket.receive()) for _ in range(2)]
        assert [message.type for message in said] == ["ack", "chat"]
        assert said[0].content.text == json.loads(question)["id"]
        assert said[1].content.text == "good morning"
        for message in (parse_message(frame), *said):
            assert message.sender == OWN
            assert message.to == ALICE
            assert verify(key, message.signature, message.signing_input)


@pytest.mark.req("ADP-40")
async def test_another_key_than_the_known_one_is_refused(bench: Bench) -> None:
    now, other = bench.clock.now(), new_private_key("ed25519", b"x" * 32)
    async with call(bench) as socket:
        socket.send(signed(ALICE, OWN, hello_text(ALICE, key=other), kind="system", at=now, key=other))
        assert await socket.closed() == (4401, "fingerprint_mismatch")
    async with call(bench) as socket:  # the right fingerprint, the wrong signature
        socket.send(signed(ALICE, OWN, hello_text(ALICE), kind="system", at=now, key=other))
        assert await socket.closed() == (4401, "bad_signature")
    async with call(bench) as socket:  # an unknown agent
        socket.send(signed(BOB, OWN, hello_text(BOB), kind="system", at=now))
        assert await socket.closed() == (4401, "unknown_peer")


@pytest.mark.req("ADP-41", "ADP-49", "ADP-50")
async def test_every_fault_of_a_message_has_its_code(bench: Bench) -> None:
    now, other = bench.clock.now(), new_private_key("ed25519", b"y" * 32)
    wrong = {
        "another key": (signed(ALICE, OWN, "hi", at=now, key=other), (4401, "bad_signature")),
        "content changed": (signed(ALICE, OWN, "hi", at=now, body={"content": "ho"}), (4401, "bad_signature")),
        "no signature": (signed(ALICE, OWN, "hi", at=now, signature=None), (4400, "bad_message")),
        "too old": (signed(ALICE, OWN, "hi", at=now - 301), (4401, "stale_timestamp")),
        "ahead": (signed(ALICE, OWN, "hi", at=now + 61), (4401, "stale_timestamp")),
        "no time": (signed(ALICE, OWN, "hi", at=now, timestamp="yesterday"), (4400, "bad_message")),
        "foreign to": (signed(ALICE, CAROL, "hi", at=now), (4403, "not_authorized")),
        "foreign from": (signed(CAROL, OWN, "hi", at=now), (4403, "not_authorized")),
        "control in id": (signed(ALICE, OWN, "hi", at=now, id="a\nb"), (4400, "bad_message")),
        "control in time": (signed(ALICE, OWN, "hi", at=now, timestamp="2026\x07"), (4400, "bad_message")),
        "content no text": (signed(ALICE, OWN, "hi", at=now, body={"content": 7}), (4400, "bad_message")),
        "unknown type": (signed(ALICE, OWN, "hi", at=now, kind="swarm"), (4400, "unsupported_type")),
        "no JSON": ("{", (4400, "bad_message")),
        "twice": ('{"id":"1","id":"2"}', (4400, "bad_message")),
        "binary": (b"{}", (4400, "bad_message")),
    }
    for name, (frame, expected) in wrong.items():
        async with call(bench) as socket:
            await socket.open(ALICE, OWN, now)
            socket.send(frame)
            assert (name, await socket.closed()) == (name, expected)


@pytest.mark.req("ADP-49")
async def test_the_edges_of_the_window_are_inside(bench: Bench) -> None:
    now = bench.clock.now()
    async with call(bench) as socket:
        await socket.open(ALICE, OWN, now)
        for at in (now - 300, now + 60):
            assert await socket.answer(signed(ALICE, OWN, "echo in time", at=at)) == "in time"


@pytest.mark.req("ADP-49")
async def test_after_a_suspend_fresh_messages_are_accepted_and_old_ones_are_not(bench: Bench) -> None:
    """The clock of the peer went on meanwhile. A clock that is set back makes no old message valid again."""
    before = bench.clock.now()
    for jump, now in ((86_400.0, before + 86_400), (-2 * 86_400.0, before)):
        bench.clock.jump(jump)
        async with call(bench) as socket:
            await socket.open(ALICE, OWN, now)
            assert await socket.answer(signed(ALICE, OWN, "echo in time", at=now)) == "in time"
            socket.send(signed(ALICE, OWN, "echo late", at=now - 301))
            assert await socket.closed() == (4401, "stale_timestamp")


@pytest.mark.req("ADP-50")
async def test_a_replayed_id_is_refused_in_the_session_and_in_the_next(bench: Bench) -> None:
    now = bench.clock.now()
    frame = signed(ALICE, OWN, "echo once", at=now)
    async with call(bench) as socket:
        await socket.open(ALICE, OWN, now)
        assert await socket.answer(frame) == "once"
        socket.send(frame)
        assert await socket.closed() == (4401, "replay")
    async with call(bench) as socket:
        await socket.open(ALICE, OWN, now)
        socket.send(frame)
        assert await socket.closed() == (4401, "replay")
    async with call(bench) as socket:  # sent again with a new signature: acknowledged, but not delivered twice
        await socket.open(ALICE, OWN, now)
        again = signed(ALICE, OWN, "echo once", at=now + 1, id=json.loads(frame)["id"])
        socket.send(again)
        assert await socket.answer(signed(ALICE, OWN, "echo next", at=now)) == "next"


@pytest.mark.req("ADP-50")
async def test_a_restart_inside_the_window_does_not_forget(tmp_path: Path) -> None:
    frame = ""
    for turn in range(2):
        async with service(tmp_path, base_url="https://registry.example.net", store="sqlite") as running:
            pem = key_of(ALICE).public.pem()
            await running.admin().post("/api/v1/keys", json={"agent_id": ALICE, "public_key": pem})
            now = running.clock.now()
            frame = frame or signed(ALICE, OWN, "echo once", at=now)
            async with call(running) as socket:
                await socket.open(ALICE, OWN, now)
                if turn == 0:
                    assert await socket.answer(frame) == "once"
                else:
                    socket.send(frame)
                assert await socket.answer(signed(ALICE, OWN, "echo last", at=now)) == "last"
                await socket.end(1006)
            said = await running.application.key_value_store.scan("agp.out", now)
            assert sum(b"once" in kept.value for kept in said) == 1


@pytest.mark.req("ADP-41")
async def test_a_heartbeat_has_its_receipt_and_a_disconnect_ends_the_session(bench: Bench) -> None:
    now = bench.clock.now()
    async with call(bench) as socket:
        await socket.open(CAROL, OWN, now)
        beat = signed(CAROL, OWN, json.dumps({"action": "heartbeat"}), kind="system", at=now)
        socket.send(beat)
        answer = parse_message(await socket.receive())
        assert (answer.type, answer.content.text) == ("ack", json.loads(beat)["id"])
        socket.send(signed(CAROL, OWN, json.dumps({"action": "disconnect", "reason": "done"}), kind="system", at=now))
        assert await socket.closed() == (1000, None)


@pytest.mark.req("ADP-38", "ADP-39")
async def test_a_hello_counts_once_and_its_nonces_prove_that_both_are_there(bench: Bench) -> None:
    now = bench.clock.now()
    hello = signed(ALICE, OWN, hello_text(ALICE), kind="system", at=now)
    async with call(bench) as socket:
        socket.send(hello)
        assert action_of(await socket.receive())["action"] == "hello"
        socket.send(signed(ALICE, OWN, "not your nonce" * 3, kind="ack", at=now))
        assert (await socket.closed())[0] == 4401
    async with call(bench) as socket:
        socket.send(hello)
        assert await socket.closed() == (4401, "replay")
    async with call(bench) as socket:  # another first message is answered with a request for hello
        socket.send(signed(ALICE, OWN, "hi", at=now))
        assert (await socket.closed())[0] == 4401


@pytest.mark.req("ADP-38", "ADP-48")
async def test_older_hellos_open_a_session_that_is_capped(bench: Bench) -> None:
    """P-2: their trust ends at key-verified, since nothing proves that the peer is present."""
    now, fingerprint = bench.clock.now(), key_of(CAROL).public.fingerprint()
    pem = key_of(CAROL).public.pem()
    document = {
        "protocol": "ADP/1.1",
        "identity": {
            "id": CAROL,
            "domain": "carol.example.com",
            "name": "Carol",
            "publicKey": {"algorithm": "ed25519", "fingerprint": fingerprint, "full": pem},
        },
        "endpoints": {"wellKnown": "https://carol.example.com/.well-known/agent.json"},
        "capabilities": [{"id": "chat", "name": "Chat"}],
    }
    assert (await bench.admin().post("/api/v1/agents", json=document)).status_code == 201
    older = {"id": "1", "type": "adp_handshake", "protocol": "ADP/1.1", "agent_id": CAROL, "nonce": "n"}
    plain = {"type": "hello", "agent": CAROL, "fingerprint": fingerprint}
    handshake = {
        "id": "2",
        "type": "system",
        "from": CAROL,
        "body": {"action": "handshake", "fingerprint": fingerprint},
    }
    for opening in ({**older, "public_key": fingerprint}, plain, handshake):
        async with call(bench) as socket:
            socket.send(json.dumps(opening))
            answer = json.loads(await socket.receive())
            assert answer["type"] == opening["type"]
            assert await socket.answer(signed(CAROL, OWN, "echo hello", at=now)) == "hello"
    checks = (await bench.admin().get(f"/api/v1/agents/{CAROL}:verify")).json()["trust"]["checks"]
    assert "peer-verified" not in [check["check"] for check in checks]
    async with call(bench) as socket:
        await socket.open(CAROL, OWN, now)
        assert await socket.answer(signed(CAROL, OWN, "echo now", at=now)) == "now"
    checks = (await bench.admin().get(f"/api/v1/agents/{CAROL}:verify")).json()["trust"]["checks"]
    found = [check for check in checks if check["check"] == "peer-verified"]
    assert [check["state"] for check in found] == ["passed"]
    assert found[0]["evidence"]["key_by"] == "pin"


@pytest.mark.req("ADP-38", "ADP-41")
async def test_a_failed_first_message_is_answered_with_the_reason(bench: Bench) -> None:
    now = bench.clock.now()
    hello = hello_text(ALICE)
    wrong = {
        "no hello": (signed(ALICE, OWN, "hi", at=now), (4401, "not_authorized")),
        "foreign to": (signed(ALICE, CAROL, hello, kind="system", at=now), (4403, "not_authorized")),
        "control in id": (signed(ALICE, OWN, hello, kind="system", at=now, id="a\nb"), (4400, "bad_message")),
        "no name": (signed("alice", OWN, hello, kind="system", at=now), (4400, "bad_message")),
        "no JSON": ("{", (4400, "bad_message")),
    }
    for name, (frame, expected) in wrong.items():
        async with call(bench) as socket:
            socket.send(frame)
            assert (name, await socket.closed()) == (name, expected)


@pytest.mark.req("ADP-41")
async def test_a_reply_is_resent_after_a_broken_connection_but_not_after_an_orderly_close(bench: Bench) -> None:
    """A peer that does not acknowledge must not receive old answers first."""
    for code, told in ((1000, "echo fresh"), (1006, "echo second")):
        async with call(bench) as socket:
            now = bench.clock.now()
            await socket.open(ALICE, OWN, now)
            socket.send(signed(ALICE, OWN, told, at=now))
            assert [parse_message(await socket.receive()).type for _ in range(2)] == ["ack", "chat"]
            await socket.end(code)
        bench.clock.advance(5)
    async with call(bench) as socket:
        await socket.open(ALICE, OWN, bench.clock.now())
        assert parse_message(await socket.receive()).content.text == "second"

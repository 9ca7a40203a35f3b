"""`/agent/chat`: authentication, limits for strangers, selection by Host, and forwarding."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.agp import ALICE, BOB, CAROL, Socket, action_of, hello_text, key_of, signed
from support.service import Bench, profile, service
from waypost import limits
from waypost.server.api.adp.agp.websocket import AgpWebSocketApp
from waypost.trust.document_signatures import sign_adp_public_key
from waypost.trust.keys.private_key import load_private_key

OWN = "agent:registry.example.net"
HOSTED = "agent:hosted.example.com"
pytestmark = pytest.mark.asyncio(loop_scope="module")


def document(agent: str) -> dict[str, object]:
    domain = agent.removeprefix("agent:")
    public = sign_adp_public_key(key_of(agent), domain)
    return {
        "protocol": "ADP/1.1",
        "identity": {"id": agent, "domain": domain, "name": f"{domain} talks", "publicKey": public},
        "endpoints": {"wellKnown": f"https://{domain}/.well-known/agent.json"},
        "capabilities": [{"id": "chat", "name": "Chat"}],
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    async with service(tmp_path_factory.mktemp("agp"), base_url="https://registry.example.net") as running:
        admin = running.admin()
        for agent in (ALICE, BOB, CAROL):
            body = {"agent_id": agent, "public_key": key_of(agent).public.pem()}
            assert (await admin.post("/api/v1/keys", json=body)).is_success
        assert (await admin.post("/api/v1/agents", json=document(BOB))).is_success
        hidden = profile("https://agents.example.net/id/hidden", name="Secret Zebra", description="Counts zebras.")
        assert (await admin.post("/api/v1/agents", json=hidden, headers={"Waypost-Visibility": "private"})).is_success
        seen = profile("https://agents.example.net/id/seen", name="Open Zebra", description="Counts zebras.")
        assert (await admin.post("/api/v1/agents", json=seen)).is_success
        seen_id = "https%3A%2F%2Fagents.example.net%2Fid%2Fseen"
        answer = await admin.post(f"/api/v1/agents/{seen_id}:host", json={"domain": "hosted.example.com"})
        assert answer.is_success, answer.text
        yield running


def call(bench: Bench, **headers: str) -> Socket:
    return Socket(bench.application.app, **{"host": "registry.example.net", **headers})


async def refused(socket: Socket) -> int:
    """The status of an answer instead of the upgrade."""
    event = await socket.event()
    assert event["type"] == "websocket.http.response.start", event
    return int(event["status"])


async def test_a_token_must_be_valid_and_admits_a_peer_without_a_known_key(bench: Bench) -> None:
    now, stranger = bench.clock.now(), "agent:nobody.key.invalid"
    async with call(bench, authorization="Bearer wrong") as socket:
        assert await refused(socket) == 401
    hello = signed(stranger, OWN, hello_text(stranger), kind="system", at=now)
    async with call(bench) as socket:
        socket.send(hello)
        assert await socket.closed() == (4401, "unknown_peer")
    async with call(bench, authorization=f"Bearer {bench.token('reader', 'discover:read')}") as socket:
        await socket.open(stranger, OWN, now)
        assert await socket.answer(signed(stranger, OWN, "echo I am in", at=now)) == "I am in"


async def test_with_its_token_an_agent_is_known_by_the_key_of_its_own_record(bench: Bench) -> None:
    """A hello need not show the key (P-2): its fingerprint is that of the record, which the token's subject registered."""
    now, known, unknown = bench.clock.now(), "agent:recorded.example.com", "agent:unrecorded.example.com"
    assert (await bench.as_("dora").post("/api/v1/agents", json=document(known))).status_code == 201
    for subject, agent, let_in in (("dora", known, True), ("eve", known, False), ("dora", unknown, False)):
        said = {key: value for key, value in json.loads(hello_text(agent)).items() if key != "key"}
        token = bench.token(subject, "discover:read")
        async with call(bench, authorization=f"Bearer {token}") as socket:
            socket.send(signed(agent, OWN, json.dumps(said), kind="system", at=now))
            if let_in:
                assert action_of(await socket.receive())["action"] == "hello"
            else:
                assert await socket.closed() == (4401, "unknown_peer")


async def test_a_session_ends_with_the_token_that_it_came_with(bench: Bench) -> None:
    conversations = bench.application.app.websockets["/agent/chat"]
    assert isinstance(conversations, AgpWebSocketApp)
    before, conversations.recheck_seconds = conversations.recheck_seconds, 0.01
    token = bench.token("brief", "discover:read", ttl_seconds=60)
    try:
        async with call(bench, authorization=f"Bearer {token}") as socket:
            await socket.open(ALICE, OWN, bench.clock.now())
            assert await socket.answer(signed(ALICE, OWN, "echo here", at=bench.clock.now())) == "here"
            bench.clock.advance(120)
            assert (await socket.closed())[0] == 4401
    finally:
        conversations.recheck_seconds = before


async def test_a_revoked_key_opens_no_session_even_with_a_token(bench: Bench) -> None:
    now, gone = bench.clock.now(), "agent:gone.example.com"
    key = key_of(gone).public
    body = {"agent_id": gone, "public_key": key.pem()}
    assert (await bench.admin().post("/api/v1/keys", json=body)).is_success
    async with call(bench) as socket:
        await socket.open(gone, OWN, now)
    revoked = await bench.admin().post("/api/v1/keys:revoke", json={"key_id": key.key_id, "reason": "lost"})
    assert revoked.is_success, revoked.text
    for headers in ({}, {"authorization": f"Bearer {bench.admin_token}"}):
        async with call(bench, **headers) as socket:
            socket.send(signed(gone, OWN, hello_text(gone), kind="system", at=now))
            assert (await socket.closed())[0] in (4401, 4403)


@pytest.mark.parametrize("what", ["key", "agent"])
async def test_a_conversation_ends_at_once_when_its_key_or_agent_is_revoked(bench: Bench, what: str) -> None:
    """W9: with and without a token; other conversations continue."""
    now, gone = bench.clock.now(), f"agent:{what}.revoked.example.com"
    body = {"agent_id": gone, "public_key": key_of(gone).public.pem()}
    assert (await bench.admin().post("/api/v1/keys", json=body)).is_success
    named = {"key_id": key_of(gone).public.key_id} if what == "key" else {"agent_id": gone}
    token = {"authorization": f"Bearer {bench.admin_token}"}
    async with call(bench) as plain, call(bench, **token) as vouched, call(bench) as other:
        await plain.open(gone, OWN, now)
        await vouched.open(gone, OWN, now)
        await other.open(ALICE, OWN, now)
        assert (await bench.admin().post("/api/v1/keys:revoke", json=named)).is_success
        assert (await plain.closed())[0] == 4403
        assert (await vouched.closed())[0] == 4403
        assert await other.answer(signed(ALICE, OWN, "echo still here", at=now)) == "still here"


async def test_a_peer_finds_public_agents_and_with_a_token_those_of_its_subject(bench: Bench) -> None:
    now = bench.clock.now()
    async with call(bench) as socket:
        await socket.open(ALICE, OWN, now)
        said = await socket.answer(signed(ALICE, OWN, "who counts zebras?", at=now))
        assert "Open Zebra" in said
        assert "https://agents.example.net/id/seen" in said
        assert "Secret" not in said
        told = await socket.answer(signed(ALICE, OWN, "get https://agents.example.net/id/hidden", at=now))
        assert "No agent is registered" in told
        assert "registry of agents" in await socket.answer(signed(ALICE, OWN, "Hello!", at=now))
    async with call(bench, authorization=f"Bearer {bench.admin_token}") as socket:
        await socket.open(ALICE, OWN, now)
        assert "Secret Zebra" in await socket.answer(signed(ALICE, OWN, "who counts zebras in secret?", at=now))


async def test_a_task_in_a_message_has_its_result(bench: Bench) -> None:
    now = bench.clock.now()
    async with call(bench) as socket:
        await socket.open(ALICE, OWN, now)
        task = json.dumps({"task": "discover", "input": {"query": "count zebras"}})
        result = json.loads(await socket.answer(signed(ALICE, OWN, task, kind="task", at=now)))
        candidate = result["result"]["candidates"][0]
        assert (candidate["name"], result["result"]["applied_filters"]) == ("Open Zebra", {})
        wrong = (
            {"task": "fly"},
            {"task": "discover", "input": "zebras"},
            {"task": "discover", "input": {"limit": "x"}},
        )
        for other in (*map(json.dumps, wrong), "{", "[]"):
            told = json.loads(await socket.answer(signed(ALICE, OWN, other, kind="task", at=now)))
            assert told["error"]["code"] == "invalid_request"


async def test_a_host_selects_its_agent_and_another_host_is_refused(bench: Bench) -> None:
    now = bench.clock.now()
    async with call(bench, host="hosted.example.com") as socket:
        await socket.open(ALICE, HOSTED, now)
        said = await socket.answer(signed(ALICE, HOSTED, "what can you do?", at=now))
        assert "Open Zebra is hosted here" in said
    async with call(bench, host="hosted.example.com") as socket:
        socket.send(signed(ALICE, OWN, hello_text(ALICE), kind="system", at=now))
        assert (await socket.closed())[0] == 4403
    async with call(bench, host="elsewhere.example.org") as socket:
        assert await refused(socket) == 421
    async with call(bench, origin="https://evil.example.org") as socket:
        assert await refused(socket) == 403


async def test_a_private_agent_is_served_to_invitees_and_readers_only(bench: Bench) -> None:
    now, admin, secret = bench.clock.now(), bench.admin(), "agent:secret.example.com"
    record = "https%3A%2F%2Fagents.example.net%2Fid%2Fhidden"
    assert (await admin.post(f"/api/v1/agents/{record}:host", json={"domain": "secret.example.com"})).is_success
    made = await admin.post("/api/v1/invitations", json={"agent": "https://agents.example.net/id/hidden", "uses": 1})
    assert made.is_success, made.text
    code = made.json()["invitation"]["invite"]["code"]
    hello = signed(ALICE, secret, hello_text(ALICE), kind="system", at=now)
    other = signed(ALICE, "agent:nowhere.example.com", hello_text(ALICE), kind="system", at=now)
    told = []
    for said, headers in ((hello, {}), (other, {}), (hello, {"authorization": "ADP-Invite wrong"})):
        async with call(bench, **headers) as socket:
            socket.send(said)
            told.append(await socket.closed())
    assert told == [(4403, "not_authorized")] * 3
    async with call(bench, host="secret.example.com") as socket:
        assert await refused(socket) == 421
    stranger = "agent:nobody.key.invalid"
    for number in range(2):  # who comes back by the same key takes no second use
        async with call(bench, host="secret.example.com", authorization=f"ADP-Invite {code}") as socket:
            await socket.open(stranger, secret, now)
            text = f"who are you, {number}?"
            assert "Secret Zebra is hosted here" in await socket.answer(signed(stranger, secret, text, at=now))
    async with call(bench, authorization=f"ADP-Invite {code}") as socket:
        socket.send(hello)
        assert await socket.closed() == (4403, "not_authorized")
    async with call(bench, authorization=f"Bearer {bench.admin_token}") as socket:
        await socket.open(ALICE, secret, now)
        assert "Secret Zebra" in await socket.answer(signed(ALICE, secret, "and you?", at=now))


async def test_a_binary_frame_is_answered_with_an_error_before_the_connection_ends(bench: Bench) -> None:
    now = bench.clock.now()
    async with call(bench) as socket:
        socket.send(b"\x00\x01")
        assert await socket.closed() == (4400, "bad_message")
    async with call(bench) as socket:
        await socket.open(ALICE, OWN, now)
        socket.send(b"{}")
        assert await socket.closed() == (4400, "bad_message")


async def test_strangers_of_one_address_are_few(bench: Bench) -> None:
    sockets = [call(bench) for _ in range(limits.AGP_PENDING_HANDSHAKES)]
    for socket in sockets:
        assert (await socket.event())["type"] == "websocket.accept"
    async with call(bench) as late:
        assert await refused(late) == 429
    for socket in sockets:
        await socket.__aexit__()
    async with call(bench) as socket:
        await socket.open(ALICE, OWN, bench.clock.now())


async def test_a_flood_of_messages_ends_the_session(bench: Bench) -> None:
    now = bench.clock.now()
    async with call(bench) as socket:
        await socket.open(CAROL, OWN, now)
        for number in range(limits.AGP_MESSAGES_BURST + 50):
            text = json.dumps({"action": "heartbeat", "n": number})
            socket.send(signed(CAROL, OWN, text, kind="system", at=now))
        assert await socket.closed() == (4429, "rate_limited")


# --- The relay --------------------------------------------------------------------------------------


async def attach(bench: Bench) -> Socket:
    """Bob holds a line, by hand."""
    now = bench.clock.now()
    line = call(bench)
    await line.open(BOB, OWN, now)
    line.send(signed(BOB, OWN, json.dumps({"action": "attach"}), kind="system", at=now))
    while action_of(await line.receive()).get("action") != "attached":
        pass
    return line


async def test_a_relay_passes_frames_unchanged_in_both_directions(bench: Bench) -> None:
    now = bench.clock.now()
    async with await attach(bench) as line, call(bench) as guest:
        hello = signed(ALICE, BOB, hello_text(ALICE), kind="system", at=now)
        guest.send(hello)
        assert await line.receive() == hello
        answer = signed(BOB, ALICE, hello_text(BOB, echo="n" * 32), kind="system", at=now)
        line.send(answer)
        assert await guest.receive() == answer
        for sender, to, frm, dest in ((guest, line, ALICE, BOB), (line, guest, BOB, ALICE)):
            said = signed(frm, dest, "as it is \u2028 — ✓", at=now)
            sender.send(said)
            assert await to.receive() == said
        guest.send(signed(CAROL, BOB, "in another name", at=now))
        assert await guest.closed() == (4403, "not_authorized")
        assert action_of(await line.receive()) == {"action": "gone", "agent": ALICE}


async def test_a_message_of_another_key_is_not_passed_on(bench: Bench) -> None:
    now = bench.clock.now()
    async with await attach(bench) as line, call(bench) as guest:
        guest.send(signed(ALICE, BOB, hello_text(ALICE), kind="system", at=now))
        await line.receive()
        guest.send(signed(ALICE, BOB, "forged", at=now, key=key_of(CAROL)))
        assert await guest.closed() == (4401, "bad_signature")
        line.send(signed(CAROL, ALICE, "not mine to say", at=now))
        assert (await line.closed())[0] == 4403


async def test_messages_wait_for_an_agent_that_is_away_and_stay_until_it_has_them(bench: Bench) -> None:
    now = bench.clock.now()
    async with await attach(bench):
        pass
    said = [signed(ALICE, BOB, f"message {number}", at=now, id=f"mail-{number}") for number in range(3)]
    async with call(bench) as guest:
        guest.send(signed(ALICE, BOB, hello_text(ALICE), kind="system", at=now))
        assert action_of(await guest.receive())["action"] == "mailbox"
        for frame in said:
            guest.send(frame)
            assert action_of(await guest.receive())["action"] == "kept"
        for _ in range(2):  # not acknowledged, so it comes again
            async with await attach(bench) as line:
                assert [await line.receive() for _ in said] == said
        assert (await guest.closed())[0] == 1012
    async with await attach(bench) as line:
        assert [await line.receive() for _ in said] == said
        line.send(signed(BOB, ALICE, "mail-0 mail-1 mail-2", kind="ack", at=now))
        assert action_of(await line.receive()) == {"action": "gone", "agent": ALICE}
    async with await attach(bench) as line:
        line.send(signed(BOB, OWN, "echo empty", at=now))
        assert json.loads(await line.receive())["from"] == OWN


async def test_a_caller_receives_the_hello_of_the_agent_before_its_other_messages(bench: Bench) -> None:
    now = bench.clock.now()
    async with await attach(bench):
        pass
    async with call(bench) as guest:
        guest.send(signed(ALICE, BOB, hello_text(ALICE), kind="system", at=now))
        guest.send(signed(ALICE, BOB, "while you were away", at=now, id="mail-1"))
        while action_of(await guest.receive()).get("action") != "kept":
            pass
    async with await attach(bench) as line, call(bench) as guest:
        assert json.loads(await line.receive())["id"] == "mail-1"
        guest.send(signed(ALICE, BOB, hello_text(ALICE), kind="system", at=now))
        await line.receive()
        line.send(signed(BOB, ALICE, "mail-1", kind="ack", at=now))  # of the mailbox, not of this conversation
        line.send(signed(BOB, ALICE, "to the line that you had before", at=now))
        answer = signed(BOB, ALICE, hello_text(BOB, echo="n" * 32), kind="system", at=now)
        line.send(answer)
        assert await guest.receive() == answer
        said = signed(BOB, ALICE, "to this one", at=now)
        line.send(said)
        assert await guest.receive() == said


async def test_only_an_agent_with_a_record_and_a_bound_key_may_use_the_relay(bench: Bench) -> None:
    now = bench.clock.now()
    attaching = json.dumps({"action": "attach"})
    async with call(bench) as socket:  # pinned, but not registered
        await socket.open(CAROL, OWN, now)
        socket.send(signed(CAROL, OWN, attaching, kind="system", at=now))
        assert await socket.closed() == (4403, "not_authorized")
    stranger = "agent:nobody.key.invalid"
    async with call(bench, authorization=f"Bearer {bench.admin_token}") as socket:
        await socket.open(stranger, OWN, now)
        socket.send(signed(stranger, OWN, attaching, kind="system", at=now))
        assert await socket.closed() == (4403, "not_authorized")
    async with call(bench) as socket:  # an agent that is not attached is not here
        socket.send(signed(ALICE, "agent:unheard.example.com", hello_text(ALICE), kind="system", at=now))
        assert (await socket.closed())[0] == 4403


async def test_a_hosted_agent_connects_to_the_relay_with_the_key_stored_here(bench: Bench) -> None:
    now, file = bench.clock.now(), bench.application.settings.data / "keys/hosted/hosted.example.com.pem"
    key = load_private_key(file.read_bytes())
    async with call(bench) as line:
        await line.open(HOSTED, OWN, now, key=key)
        line.send(signed(HOSTED, OWN, json.dumps({"action": "attach"}), kind="system", at=now, key=key))
        while action_of(await line.receive()).get("action") != "attached":
            pass
        assert HOSTED in bench.application.messaging.agents.lines

"""An AGP session without a socket: the state table, the handshake, and refusals."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode

import pytest

from support.agp import ALICE, BOB, CAROL, SeededDraws, hello_text, key_of, party, signed
from waypost import limits
from waypost.errors import (
    BadSignature,
    FingerprintMismatch,
    Forbidden,
    InvalidDocument,
    MalformedJson,
    OutOfTime,
    Replayed,
    TooLarge,
    Unauthorized,
    UnsupportedType,
    UnsupportedVersion,
    WaypostError,
    agp_code_of,
    error_codes,
)
from waypost.protocols.adp.agp.messages import MessageContent, parse_agent, parse_message, write_message
from waypost.protocols.adp.agp.session import (
    TRANSITIONS,
    AckReceived,
    AgpSession,
    ControlReceived,
    HelloReceived,
    MessageReceived,
    ReplayCache,
    SessionEvent,
    SessionOpened,
    SessionState,
    find_next_state,
    mermaid_diagram,
)

NOW = 1_780_000_000.0


def session(agent: str, peer: str | None = None, memory: ReplayCache | None = None) -> AgpSession:
    draws = SeededDraws(sum(agent.encode()))
    return AgpSession(party(agent), draws, peer=peer, calls=peer is not None, memory=memory)


def met() -> tuple[AgpSession, AgpSession]:
    """Two sessions that know each other."""
    caller, answerer = session(ALICE, BOB), session(BOB)
    assert isinstance(answerer.receive(caller.call(NOW), NOW), HelloReceived)
    [hello] = answerer.admit(key_of(ALICE).public, NOW)
    assert isinstance(caller.receive(hello, NOW), HelloReceived)
    [ack] = caller.admit(key_of(BOB).public, NOW)
    assert caller.is_verified
    assert not answerer.is_open
    assert isinstance(answerer.receive(ack, NOW), SessionOpened)
    assert answerer.is_verified
    return caller, answerer


def test_three_frames_verify_both_sides() -> None:
    caller, answerer = met()
    assert (caller.peer, answerer.peer) == (BOB, ALICE)
    said = answerer.receive(caller.write("chat", MessageContent(text="line one\nline two"), NOW), NOW)
    assert isinstance(said, MessageReceived)
    assert said.message.content.text == "line one\nline two"
    acknowledged = caller.receive(answerer.acknowledge((said.message.id,), NOW), NOW)
    assert acknowledged == AckReceived((said.message.id,))
    beat = caller.receive(answerer.control("heartbeat", NOW), NOW)
    assert isinstance(beat, ControlReceived)
    assert beat.verified


@pytest.mark.parametrize(
    "odd",
    [
        signed(ALICE, BOB, "by another", at=NOW, key=key_of(CAROL)),
        signed(ALICE, BOB, "no signature", at=NOW, signature="ed25519:none"),
        signed(ALICE, CAROL, "for another", at=NOW),
        signed(CAROL, BOB, "of another", at=NOW),
        signed(ALICE, BOB, "of old", at=NOW - limits.AGP_PAST_SECONDS - 1),
        signed(ALICE, BOB, "the first id again", at=NOW, id="0"),
        signed(ALICE, BOB, "a line\nfeed", at=NOW, id="a\nb"),
        signed(ALICE, BOB, "{}", at=NOW, kind="system"),
        "{",
        b"binary",
    ],
)
def test_a_frame_that_is_refused_leaves_the_messages_before_it_as_they_were(odd: str | bytes) -> None:
    _, answerer = met()
    for number in range(3):
        said = answerer.receive(signed(ALICE, BOB, f"said {number}", at=NOW, id=str(number)), NOW)
        assert isinstance(said, MessageReceived)
    with pytest.raises(WaypostError):
        answerer.receive(odd, NOW)
    with pytest.raises(Replayed):
        answerer.receive(signed(ALICE, BOB, "said 0", at=NOW, id="0"), NOW)


def test_an_answer_that_echoes_another_nonce_is_a_replay() -> None:
    caller, answerer = session(ALICE, BOB), session(BOB)
    answerer.receive(session(ALICE, BOB).call(NOW), NOW)  # of another session, with another nonce
    [hello] = answerer.admit(key_of(ALICE).public, NOW)
    other = AgpSession(party(ALICE), SeededDraws(99), peer=BOB, calls=True)
    with pytest.raises(Replayed):
        other.receive(hello, NOW)
    assert isinstance(caller.receive(hello, NOW), HelloReceived)  # the same draws, so the same nonce


def test_an_answer_signed_by_another_agent_is_refused() -> None:
    caller = session(ALICE, BOB)
    with pytest.raises(Forbidden):
        caller.receive(signed(CAROL, ALICE, hello_text(CAROL, echo="x" * 32), kind="system", at=NOW), NOW)


def test_a_key_with_another_fingerprint_or_a_signature_of_another_key_is_refused() -> None:
    answerer = session(BOB)
    answerer.receive(session(ALICE, BOB).call(NOW), NOW)
    with pytest.raises(FingerprintMismatch):
        answerer.admit(key_of(CAROL).public, NOW)
    forged = session(BOB)
    forged.receive(signed(ALICE, BOB, hello_text(ALICE), kind="system", at=NOW, key=key_of(CAROL)), NOW)
    with pytest.raises(BadSignature):
        forged.admit(key_of(ALICE).public, NOW)


def test_a_hello_for_another_agent_or_of_another_protocol_is_refused() -> None:
    with pytest.raises(Forbidden):
        session(BOB).receive(session(ALICE, CAROL).call(NOW), NOW)
    with pytest.raises(InvalidDocument):
        session(BOB).receive(signed(ALICE, BOB, hello_text(CAROL), kind="system", at=NOW), NOW)
    with pytest.raises(UnsupportedVersion):
        session(BOB).receive(signed(ALICE, BOB, hello_text(ALICE, protocol="ADP/9"), kind="system", at=NOW), NOW)
    with pytest.raises(InvalidDocument):
        session(BOB).receive(signed(ALICE, BOB, hello_text(ALICE, nonce="short"), kind="system", at=NOW), NOW)


def test_nothing_is_accepted_before_the_hello() -> None:
    with pytest.raises(Unauthorized):
        session(BOB).receive(signed(ALICE, BOB, "hi", at=NOW), NOW)
    refused = session(ALICE, BOB).receive(
        signed(BOB, ALICE, json.dumps({"action": "error", "code": "unknown_peer"}), kind="system", at=NOW), NOW
    )
    assert isinstance(refused, ControlReceived)
    assert not refused.verified


def test_a_second_hello_in_a_session_is_no_message() -> None:
    _, answerer = met()
    said = answerer.receive(session(ALICE, BOB).write("system", MessageContent(text=hello_text(ALICE)), NOW), NOW)
    assert isinstance(said, ControlReceived)  # reported, without effect
    assert answerer.state is SessionState.OPEN


def test_the_window_of_time_is_300_seconds_back_and_60_ahead() -> None:
    _, answerer = met()
    for late in (-limits.AGP_PAST_SECONDS - 1, limits.AGP_FUTURE_SECONDS + 1):
        with pytest.raises(OutOfTime):
            answerer.receive(signed(ALICE, BOB, "hi", at=NOW + late), NOW)
    for late in (-limits.AGP_PAST_SECONDS, limits.AGP_FUTURE_SECONDS):
        assert isinstance(answerer.receive(signed(ALICE, BOB, "hi", at=NOW + late), NOW), MessageReceived)


def test_an_id_counts_once_in_a_session_and_its_bytes_once_in_all() -> None:
    memory = ReplayCache()
    frame, again = (signed(ALICE, BOB, "hi", at=at, id="one") for at in (NOW, NOW + 1))
    for turn, copies in enumerate(((frame, frame), (frame,), (again, again))):
        answerer = session(BOB, memory=memory)
        hello = signed(ALICE, BOB, hello_text(ALICE), kind="system", at=NOW)
        answerer.receive(hello, NOW)
        [answer] = answerer.admit(key_of(ALICE).public, NOW)
        nonce = json.loads(json.loads(answer)["body"]["content"])["nonce"]
        answerer.receive(signed(ALICE, BOB, nonce, kind="ack", at=NOW, id=f"ack {turn}"), NOW)
        if turn != 1:
            assert isinstance(answerer.receive(copies[0], NOW), MessageReceived)
        with pytest.raises(Replayed):
            answerer.receive(copies[-1], NOW)


def test_the_memory_of_ids_is_bounded_in_number_and_time() -> None:
    memory = ReplayCache(most=3, seconds=10)
    for number in range(5):
        memory.add(ALICE, str(number), NOW + number)
    assert len(memory) == 3
    memory.add(ALICE, "later", NOW + 100)
    assert len(memory) == 1
    with pytest.raises(Replayed):
        memory.check(ALICE, "later")
    memory.check(BOB, "later")


NO_MESSAGES: dict[str, tuple[str | bytes, type[Exception]]] = {
    "binary": (b"{}", InvalidDocument),
    "a list": ("[]", MalformedJson),
    "no JSON": ("{", MalformedJson),
    "twice": ('{"id":"1","id":"2"}', MalformedJson),
    "empty": ("{}", InvalidDocument),
    "unknown type": (signed(ALICE, BOB, "hi", at=NOW, kind="hello world"), UnsupportedType),
    "long id": (signed(ALICE, BOB, "hi", at=NOW, id="x" * 129), InvalidDocument),
    "body no object": (signed(ALICE, BOB, "hi", at=NOW, body=[]), InvalidDocument),
    "content no text": (signed(ALICE, BOB, "hi", at=NOW, body={"content": {"a": 1}}), InvalidDocument),
    "no agent": (signed("urn:alice", BOB, "hi", at=NOW, key=key_of(ALICE)), InvalidDocument),
    "no name": (signed(ALICE, "agent:", "hi", at=NOW), InvalidDocument),
    "too large": (json.dumps({"id": "x" * limits.AGP_FRAME_BYTES}), TooLarge),
}


@pytest.mark.parametrize("name", list(NO_MESSAGES))
def test_an_invalid_message_is_refused(name: str) -> None:
    frame, error = NO_MESSAGES[name]
    with pytest.raises(error):
        parse_message(frame)


def test_a_missing_content_is_signed_as_empty() -> None:
    message = parse_message(signed(ALICE, BOB, "", at=NOW, body={}))
    assert message.content.text == ""
    assert message.signing_input.endswith(b"Z\n")


def test_a_content_that_fits_no_frame_is_not_written() -> None:
    def written(text: str) -> str:
        return write_message(
            key_of(ALICE), message_id="1", sender=ALICE, to=BOB, kind="chat", at=NOW, content=MessageContent(text=text)
        )

    assert parse_message(written("é" * (limits.AGP_CONTENT_BYTES // 2))).content.text.startswith("é")
    with pytest.raises(TooLarge):
        written("x" * (limits.AGP_CONTENT_BYTES + 1))


def test_names_are_compared_in_lower_case_and_signed_as_they_are() -> None:
    assert parse_agent("agent:Alice.Example.com") == ALICE
    message = parse_message(signed("agent:ALICE.example.com", BOB, "hi", at=NOW, key=key_of(ALICE)))
    assert message.sender == ALICE
    assert b"ALICE" in message.signing_input


# --- The table --------------------------------------------------------------------------------------


def test_every_state_can_end_and_nothing_follows_the_end() -> None:
    for state in SessionState:
        for event in (SessionEvent.FAULT, SessionEvent.DISCONNECT):
            assert find_next_state(state, event) is (None if state is SessionState.ENDED else SessionState.ENDED)
    assert not [state for state, _ in TRANSITIONS if state is SessionState.ENDED]


def test_only_the_two_open_states_take_messages_and_each_state_is_reached() -> None:
    assert {state for state, event in TRANSITIONS if event is SessionEvent.MESSAGE} == {
        SessionState.OPEN,
        SessionState.CAPPED,
    }
    assert {SessionState.CALLING, SessionState.LISTENING, *TRANSITIONS.values()} == set(SessionState)


def test_the_diagram_draws_the_table() -> None:
    drawn = mermaid_diagram()
    for (state, event), target in TRANSITIONS.items():
        if target is not SessionState.ENDED:
            assert f"{state.value.replace(' ', '_')} --> {target.value.replace(' ', '_')}: {event.value}" in drawn


@pytest.mark.parametrize(
    ("error", "code", "close"),
    [
        (InvalidDocument(""), "bad_message", 4400),
        (UnsupportedType(""), "unsupported_type", 4400),
        (BadSignature(""), "bad_signature", 4401),
        (OutOfTime(""), "stale_timestamp", 4401),
        (Replayed(""), "replay", 4401),
        (FingerprintMismatch(""), "fingerprint_mismatch", 4401),
        (Forbidden(""), "not_authorized", 4403),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_fault_has_its_code_and_its_close_code(error: InvalidDocument, code: str, close: int) -> None:
    assert (agp_code_of(error), error_codes(error).ws_close) == (code, close)


def test_an_older_hello_shows_a_key_in_any_way_that_it_was_ever_written() -> None:
    """C-3: PEM, base64 of the 32 bytes, base64 of the DER; a fingerprint will do too."""
    public = key_of(CAROL).public
    raw = public.raw or b""
    der = bytes.fromhex("302a300506032b6570032100") + raw
    shown = [public.pem(), urlsafe_b64encode(raw).decode(), urlsafe_b64encode(raw).rstrip(b"=").decode()]
    shown += [b64encode(der).decode(), str(public.fingerprint())]
    for text in shown:
        answerer = session(BOB)
        called = answerer.receive(
            json.dumps({"id": "1", "type": "adp_handshake", "agent_id": CAROL, "public_key": text}), NOW
        )
        assert isinstance(called, HelloReceived)
        assert called.hello.fingerprint == public.fingerprint(), text


@pytest.mark.parametrize("text", ["", "x", "a" * 45, "ed25519:short", "-----BEGIN PUBLIC KEY-----"])
def test_an_older_hello_without_a_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidDocument, match="fingerprint"):
        session(BOB).receive(
            json.dumps({"id": "1", "type": "adp_handshake", "agent_id": CAROL, "public_key": text}), NOW
        )


def test_a_hello_message_may_name_the_sender_in_its_content() -> None:
    said = {"agent": CAROL, "fingerprint": key_of(CAROL).public.fingerprint(), "nonce": "bm9uY2U"}
    called = session(BOB).receive(signed(CAROL, BOB, json.dumps(said), kind="hello", at=NOW), NOW)
    assert isinstance(called, HelloReceived)
    assert (called.hello.agent, called.hello.nonce, called.hello.form) == (CAROL, "bm9uY2U", "hello")

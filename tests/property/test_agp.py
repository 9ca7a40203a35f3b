"""Properties of AGP: signed messages survive a round trip, changed ones are refused, no input breaks the parser."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agp import ALICE, BOB, SeededDraws, key_of, party, signed
from support.examples import examples
from waypost.errors import WaypostError
from waypost.protocols.adp.agp.messages import MessageContent, parse_message, verify, write_message
from waypost.protocols.adp.agp.session import AgpSession, MessageReceived, SessionState

NOW = 1_780_000_000.0
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200)
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
KEY = key_of(ALICE)
GOOD = json.loads(signed(ALICE, BOB, "hello", at=NOW))


def opened() -> AgpSession:
    """A session that is open, without the cost of a handshake."""
    session = AgpSession(party(BOB), SeededDraws(), calls=False)
    session.peer, session.peer_key, session.state = ALICE, KEY.public, SessionState.OPEN
    return session


@settings(max_examples=examples(60))
@given(texts, st.sampled_from(["chat", "task", "system", "ack"]), st.booleans(), st.none() | st.just("other"))
def test_whatever_is_written_is_read_as_it_was_and_verifies(
    text: str, kind: str, more: bool, reply: str | None
) -> None:
    content = MessageContent(text=text, reply_to=reply, more=more)
    frame = write_message(KEY, message_id="1", sender=ALICE, to=BOB, kind=kind, at=NOW, content=content)
    message = parse_message(frame)
    assert message.content == content
    assert (message.sender, message.to, message.type, message.at) == (ALICE, BOB, kind, NOW)
    assert verify(KEY.public, message.signature, message.signing_input)


@settings(max_examples=examples(100))
@given(st.sampled_from(["id", "from", "to", "type", "timestamp", "signature", "content"]), texts)
def test_a_message_changed_after_signing_is_never_delivered(member: str, value: str) -> None:
    changed = json.loads(json.dumps(GOOD))
    if member == "content":
        is_same = changed["body"]["content"] == value
        changed["body"]["content"] = value
    else:
        is_same = changed[member] == value
        changed[member] = value
    try:
        heard = opened().receive(json.dumps(changed), NOW)
    except WaypostError:
        return
    assert is_same
    assert isinstance(heard, MessageReceived)


@settings(max_examples=examples(60))
@given(texts, st.permutations(list(GOOD)), st.booleans(), st.none() | st.integers(0, 3))
def test_a_message_is_the_same_however_its_frame_is_written(
    text: str, order: list[str], ascii_only: bool, indent: int | None
) -> None:
    plain = signed(ALICE, BOB, text, at=NOW)
    document = json.loads(plain)
    rewritten = json.dumps({name: document[name] for name in order}, ensure_ascii=ascii_only, indent=indent)
    assert parse_message(rewritten) == parse_message(plain)


twice = st.sampled_from(["id", "from", "to", "type", "timestamp", "signature", "body"])


@given(twice)
def test_a_member_that_is_written_twice_is_refused(name: str) -> None:
    frame = json.dumps(GOOD)
    doubled = frame[:-1] + f', "{name}": {json.dumps(GOOD[name])}}}'
    with pytest.raises(WaypostError):
        parse_message(doubled)


distorted = st.dictionaries(st.sampled_from(list(GOOD)), values).map(lambda some: json.dumps({**GOOD, **some}))


@settings(max_examples=examples(100))
@given(st.one_of(values.map(json.dumps), distorted, texts))
def test_no_frame_breaks_the_reader(frame: str) -> None:
    for session in (opened(), AgpSession(party(BOB), SeededDraws(), calls=False)):
        refused: WaypostError | None = None
        try:
            session.receive(frame, NOW)
        except WaypostError as error:
            refused = error
        if refused is not None:
            told = session.fault_frame(refused, NOW)
            assert refused.message
            assert told is None or parse_message(told).to == session.peer


@given(st.lists(st.tuples(st.sampled_from(["good", "again", "old", "forged"]), st.integers(0, 4)), max_size=12))
@settings(max_examples=examples(40))
def test_no_order_of_messages_delivers_one_twice_or_a_forged_one(steps: list[tuple[str, int]]) -> None:
    session, heard = opened(), []
    for kind, number in steps:
        at = NOW - 400 if kind == "old" else NOW + (kind == "again")
        key = key_of(BOB) if kind == "forged" else KEY
        try:
            said = session.receive(signed(ALICE, BOB, str(number), at=at, id=str(number), key=key), NOW)
        except WaypostError:
            continue
        assert kind in ("good", "again")
        assert isinstance(said, MessageReceived)
        heard.append(said.message.id)
    assert len(heard) == len(set(heard))

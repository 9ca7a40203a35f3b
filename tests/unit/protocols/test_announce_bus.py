"""Bus subjects, and where replies may go."""

from __future__ import annotations

import pytest

from waypost.errors import ConfigurationError, InvalidDocument
from waypost.protocols.announce.messages import TOPIC, check_group, reply_subject, servers_of, subject_of

SUBJECT = "topic.discovery"
HOSTILE = ["a.b", "*", ">", "topic.>", "a b", "a\r\nPUB x 1", "a\n", "", "/", "a//b", "$SYS", "é", "a" * 65, "a\x00"]


def test_the_topic_of_the_protocol_is_a_subject_of_two_words() -> None:
    assert subject_of(TOPIC) == SUBJECT
    assert subject_of("one_word-2") == "one_word-2"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_topic_and_a_group_are_made_of_plain_words(name: str) -> None:
    """B1."""
    with pytest.raises(ConfigurationError):
        subject_of(name)
    with pytest.raises(ConfigurationError):
        check_group(name)


@pytest.mark.parametrize("inbox", ["_INBOX.abc", "_INBOX_ada.Xy-9_.12", SUBJECT])
def test_an_answer_goes_to_an_inbox_or_to_the_topic(inbox: str) -> None:
    assert reply_subject(SUBJECT, inbox, {}) == inbox
    assert reply_subject(SUBJECT, "", {"reply_to": inbox}) == inbox


def test_the_reply_subject_of_the_bus_comes_first_and_the_topic_last() -> None:
    assert reply_subject(SUBJECT, "_INBOX.a", {"reply_to": "_INBOX.b"}) == "_INBOX.a"
    assert reply_subject(SUBJECT, "", {"reply_to": TOPIC}) == SUBJECT
    assert reply_subject(SUBJECT, "", {}) == SUBJECT


@pytest.mark.parametrize(
    "inbox",
    [
        *filter(None, HOSTILE),
        "orders.create",
        "/topic/other",
        "$SYS.REQ.USER.INFO",
        "$JS.API.STREAM.DELETE.x",
        "_INBOX",
        "_INBOX.",
        "_INBOX.*",
        "_INBOX.>",
        "_INBOX.a b",
        "_INBOX.a\r\nPUB orders 2",
        "_INBOX.a\n",
        "_INBOXES/../orders",
        "topic.discovery.",
    ],
)
def test_an_answer_goes_nowhere_else(inbox: str) -> None:
    """B1: no message makes a registry publish to other subjects."""
    with pytest.raises(InvalidDocument):
        reply_subject(SUBJECT, inbox, {})
    with pytest.raises(InvalidDocument):
        reply_subject(SUBJECT, "", {"reply_to": inbox})


@pytest.mark.parametrize("value", [7, ["_INBOX.a"], {"a": 1}, True])
def test_where_an_answer_goes_is_a_text(value: object) -> None:
    with pytest.raises(InvalidDocument):
        reply_subject(SUBJECT, "", {"reply_to": value})


def test_addresses_of_a_bus() -> None:
    assert servers_of("nats://a:4222, tls://u:p@b") == ["nats://a:4222", "tls://u:p@b"]


@pytest.mark.parametrize(
    "address", ["", ",", "localhost:4222", "http://a:1", "nats://", "nats://a:x", "nats://a:99999"]
)
def test_an_address_that_is_none_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        servers_of(address)
    assert "nats://127.0.0.1:4222" in str(refused.value.hint)

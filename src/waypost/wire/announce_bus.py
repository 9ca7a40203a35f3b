"""The announce protocol on a bus (announce.md §6.6, P-29): names of subjects, and where an answer may go.

Pure. A message is JSON without prefix. A subject is never put together from what others wrote: a topic of a setting is refused
unless each of its words is plain, and an answer goes to an inbox or to the topic, nowhere else (THREATS B1).
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import urlsplit

from waypost.errors import ConfigurationError, InvalidDocument
from waypost.model.json import JsonObject

TOPIC = "/topic/discovery"  # ANN-38
REPLY_TO = "reply_to"
_WORD = r"[A-Za-z0-9_-]{1,64}"
_TOPIC = re.compile(rf"/?{_WORD}(?:/{_WORD}){{0,7}}\Z")
_INBOX = re.compile(rf"_INBOX[A-Za-z0-9_-]{{0,64}}(?:\.{_WORD}){{1,4}}\Z")
_GROUP = re.compile(rf"{_WORD}\Z")


def subject_of(topic: str) -> str:
    """`/topic/discovery` is `topic.discovery`."""
    if not _TOPIC.match(topic):
        raise ConfigurationError(
            "The topic of a bus is made of words of letters, digits, '-' and '_'.",
            path="bus_topic",
            hint=f"Write it like {TOPIC}.",
        )
    return topic.strip("/").replace("/", ".")


def servers_of(address: str) -> list[str]:
    """One server or several of the same bus, divided by commas."""
    servers = [each.strip() for each in address.split(",") if each.strip()]
    if not servers or not all(map(_is_server, servers)):
        raise ConfigurationError(
            "The address of a bus is nats://HOST:PORT, or tls:// instead.",
            path="bus",
            hint="Write it like nats://127.0.0.1:4222; several servers are divided by commas.",
        )
    return servers


def _is_server(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("nats", "tls") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def check_group(group: str) -> str:
    if not _GROUP.match(group):
        raise ConfigurationError(
            "The group of a bus is one word of letters, digits, '-' and '_'.",
            path="bus_group",
            hint="Write it like registry-eu.",
        )
    return group


def reply_subject(subject: str, inbox: str, message: JsonObject) -> str:
    """Where the answer to a message goes: where the bus says, else where the message says, else to the topic itself."""
    wanted = inbox or message.get(REPLY_TO) or subject
    if not isinstance(wanted, str):
        raise _refused()
    if _TOPIC.match(wanted) and subject_of(wanted) == subject:
        return subject
    if wanted != subject and not _INBOX.match(wanted):
        raise _refused()
    return wanted


def digest_of(data: bytes) -> str:
    """By which a message that comes twice is known."""
    return hashlib.sha256(data).hexdigest()


def _refused() -> InvalidDocument:
    return InvalidDocument(
        "An answer goes to an inbox or to the topic.",
        path=f"$.{REPLY_TO}",
        hint="Name an inbox (_INBOX.…), or nothing.",
    )

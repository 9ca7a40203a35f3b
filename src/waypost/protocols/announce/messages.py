"""Announce messages, independent of the transport: versions, kinds, queries, responses, bus subjects, and the fallback
from the LAN to the registry. Bytes and values only: no sockets, no clock, no signatures. Major version 1 is supported,
with any minor version.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import ConfigurationError, InvalidDocument, InvalidParameter, UnsupportedVersion
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.versions import Range, parse_range

_SUPPORTED = ("v1.1", "v1.0")
_MINOR_MAX = 1  # the highest known one; higher ones are read as this one
_VERSION = re.compile(r"v(\d{1,6})\.(\d{1,6})\Z", re.ASCII)


def parse_minor(value: Any, path: str = "$.protocol_version") -> int:
    """Return the minor version of a major version 1; other texts are malformed, other majors unsupported (ANN-50)."""
    found = _VERSION.match(value) if isinstance(value, str) else None
    if found is None or int(found[1]) == 0:
        raise InvalidDocument(f"{str(value)[:16]!r} is not a protocol version.", path=path, hint="Write it like v1.0.")
    if int(found[1]) != 1:
        raise UnsupportedVersion(
            f"The protocol version {value[:16]} is not supported.",
            path=path,
            hint=f"Use {' or '.join(reversed(_SUPPORTED))}.",
            details={"supported": list(_SUPPORTED)},
        )
    return int(found[2])


def negotiated_version(minor: int) -> str:
    """Return the version for replies: the highest minor that both sides know."""
    return f"v1.{min(minor, _MINOR_MAX)}"


# --- Version negotiation (announce.md §8) ---------------------------------------------------------


class VersionDecision(msgspec.Struct, frozen=True):
    """What to do with a message: process it, warn about its minor version, reply with our major version."""

    process: bool
    warn: bool = False
    answer: bool = False


class _PeerVersion(msgspec.Struct):
    warned_at: float | None = None
    answered_at: float | None = None


class VersionNegotiation:
    """Limits warnings and replies about versions, per peer. Bounded: the peers used longest ago are dropped first."""

    def __init__(self) -> None:
        self._peers: LruCache[str, _PeerVersion] = LruCache(limits.VERSION_PEERS)

    def __len__(self) -> int:
        return len(self._peers)

    def read(self, peer: str, version: Any, now: float) -> VersionDecision:
        """Decide on a message; raises InvalidDocument for an invalid version."""
        try:
            minor = parse_minor(version)
        except UnsupportedVersion:
            return VersionDecision(process=False, answer=self._is_reply_due(peer, now))
        if minor == 0:
            return VersionDecision(process=True)
        known = self._peer(peer)
        warn = _is_due(known.warned_at, now, limits.VERSION_WARN_SECONDS)
        if warn:
            known.warned_at = now
        return VersionDecision(process=True, warn=warn)

    def _is_reply_due(self, peer: str, now: float) -> bool:
        known = self._peer(peer)
        due = _is_due(known.answered_at, now, limits.VERSION_ANSWER_SECONDS)
        if due:
            known.answered_at = now
        return due

    def _peer(self, name: str) -> _PeerVersion:
        known = self._peers.get(name)
        if known is None:
            known = _PeerVersion()
            self._peers.put(name, known)
        return known


def _is_due(last: float | None, now: float, pause: float) -> bool:
    return last is None or now - last >= pause


# --- Messages (announce.md §2) --------------------------------------------------------------------

MessageKind = Literal["announce", "query", "response"]
_ANYTHING = "*"
_QUERY_ID_CHARS = 64
_CAPABILITY_CHARS = 64 + 1 + limits.VERSION_RANGE_CHARS


def kind_of_message(document: JsonObject) -> MessageKind:
    """Return the kind by its members (ANN-5): `query`; else `matched` for a response; else `agent`."""
    if "query" in document:
        return "query"
    if "matched" in document:
        return "response"
    if "agent" in document:
        return "announce"
    raise InvalidDocument(
        "The message has neither an agent nor a query.",
        path="$",
        hint='Send {"protocol_version":"v1.0","agent":{…},"signature":"…"} or {"protocol_version":"v1.0","query":{…}}.',
    )


class CapabilityRequirement(msgspec.Struct, frozen=True):
    """One required capability: its name, and the accepted versions."""

    name: str  # `*`: any agent
    versions: Range | None = None
    written: str = ""  # text of the range

    def fits(self, capabilities: Mapping[str, str]) -> bool:
        """Return whether the capabilities have it. Names are case-sensitive (ANN-6)."""
        if self.name == _ANYTHING:
            return True
        value = capabilities.get(self.name)
        return value is not None and (self.versions is None or self.versions.allows(value))

    def text(self) -> str:
        return f"{self.name}@{self.written}" if self.versions is not None else self.name


class AgentQuery(msgspec.Struct, frozen=True, kw_only=True):
    requirements: tuple[CapabilityRequirement, ...] = ()
    agent_id: str | None = None  # lower case
    query_id: str | None = None
    minor: int = 0

    def matches(self, agent_id: str, capabilities: Mapping[str, str]) -> bool:
        """Match an agent; `capabilities` maps names to versions or texts, nested ones flattened."""
        if self.agent_id is not None and self.agent_id != agent_id.lower():
            return False
        return all(requirement.fits(capabilities) for requirement in self.requirements)


def parse_capability_requirement(text: str, path: str = "capability") -> CapabilityRequirement:
    """Parse `name`, `name@range` (the ranges of rtfs.md §6) or `*`. A name may start with `@`."""
    name, at, versions = text.rpartition("@")
    if not at or not name:
        name, at = text, ""
    if not name.strip() or len(text) > _CAPABILITY_CHARS:
        raise InvalidParameter(
            "A capability must be a name of 1 to 64 characters, or name@range.",
            path=path,
            hint="Write metrics or metrics@^2.0.",
        )
    return CapabilityRequirement(name, parse_range(versions, path), versions) if at else CapabilityRequirement(name)


def parse_query(document: JsonObject) -> AgentQuery:
    """Parse a Query message. `agent_id` may be inside `query` or beside it (P-5)."""
    minor = parse_minor(document.get("protocol_version"))
    query = document["query"]
    if not isinstance(query, dict):
        raise InvalidDocument("'query' must be an object.", path="$.query", hint='Write {"capability":"metrics"}.')
    capability = _text(query, "capability", "$.query", _CAPABILITY_CHARS)
    agent_id = _text(query, "agent_id", "$.query", 64) or _text(document, "agent_id", "$", 64)
    if capability is None and agent_id is None:
        raise InvalidDocument(
            "The query has neither a capability nor an agent_id.",
            path="$.query",
            hint='Write {"capability":"metrics"}, or "*" for any.',
        )
    return AgentQuery(
        requirements=() if capability is None else (parse_capability_requirement(capability, "$.query.capability"),),
        agent_id=None if agent_id is None else agent_id.lower(),
        query_id=_text(document, "query_id", "$", _QUERY_ID_CHARS),
        minor=minor,
    )


def build_query(query: AgentQuery, version: str = "v1.0", **more: Any) -> JsonObject:
    """Make a Query message. It has room for one capability: the sender of several filters the responses. A lookup by id
    has `*`, because the schema requires a capability (P-5)."""
    members: JsonObject = {"capability": query.requirements[0].text() if query.requirements else _ANYTHING}
    if query.agent_id is not None:
        members["agent_id"] = query.agent_id
    optional: JsonObject = {"query_id": query.query_id} if query.query_id is not None else {}
    return {"protocol_version": version, "query": members, **optional, **more}


def parse_message(data: bytes) -> JsonObject:
    """Parse a received message: strict JSON of a known kind."""
    document = parse_object(data, max_bytes=limits.ANNOUNCE_BYTES)
    kind_of_message(document)
    return document


def build_response(message: JsonObject, query_id: str | None = None) -> JsonObject:
    """Make an Announce or Response the response to a query; the signed agent and its signatures are unchanged."""
    optional: JsonObject = {"query_id": query_id} if query_id is not None else {}
    members = {name: value for name, value in message.items() if name not in ("matched", "query_id")}
    return {**members, "matched": True, **optional}


def _text(document: JsonObject, name: str, path: str, most: int) -> str | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value or len(value) > most:
        raise InvalidDocument(f"{name!r} must be a string of 1 to {most} characters.", path=f"{path}.{name}")
    return value


class AnnounceSignatures(msgspec.Struct, frozen=True):
    """The signatures beside an agent, as received."""

    signature: str | None = None
    previous_signature: str | None = None


def encode_response(agent: bytes, signatures: AnnounceSignatures, *, version: str, **more: Any) -> bytes:
    """Encode a Response (ANN-7) with the agent and its signatures verbatim, so that they stay verifiable."""
    head = b'{"protocol_version":' + dump_json(version) + b',"agent":' + agent
    members: JsonObject = {
        name: value
        for name, value in (
            ("signature", signatures.signature),
            ("previous_signature", signatures.previous_signature),
            ("matched", True),
            *more.items(),
        )
        if value is not None
    }
    return head + b"," + dump_json(members)[1:]


# --- The bus (announce.md §6.6, P-29) -------------------------------------------------------------
# Subjects are never built from the text of others: every word of a configured topic must be plain, and a reply goes to
# an inbox or to the topic only (THREATS B1).

TOPIC = "/topic/discovery"  # ANN-38
_REPLY_TO = "reply_to"
_WORD = r"[A-Za-z0-9_-]{1,64}"
_TOPIC = re.compile(rf"/?{_WORD}(?:/{_WORD}){{0,7}}\Z")
_INBOX = re.compile(rf"_INBOX[A-Za-z0-9_-]{{0,64}}(?:\.{_WORD}){{1,4}}\Z")
_GROUP = re.compile(rf"{_WORD}\Z")


def subject_of(topic: str) -> str:
    """Return the subject of a topic: `/topic/discovery` is `topic.discovery`."""
    if not _TOPIC.match(topic):
        raise ConfigurationError(
            "A bus topic must consist of words of letters, digits, '-' and '_'.",
            path="bus_topic",
            hint=f"Write it like {TOPIC}.",
        )
    return topic.strip("/").replace("/", ".")


def servers_of(address: str) -> list[str]:
    """Parse the servers of one bus, separated by commas."""
    servers = [each.strip() for each in address.split(",") if each.strip()]
    if not servers or not all(map(_is_server, servers)):
        raise ConfigurationError(
            "A bus address must be nats://HOST:PORT or tls://HOST:PORT.",
            path="bus",
            hint="Write it like nats://127.0.0.1:4222; separate several servers by commas.",
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
            "A bus group must be one word of letters, digits, '-' and '_'.",
            path="bus_group",
            hint="Write it like registry-eu.",
        )
    return group


def reply_subject(subject: str, inbox: str, message: JsonObject) -> str:
    """Return the subject for the reply: the inbox given by the bus, else by the message, else the topic itself."""
    target = inbox or message.get(_REPLY_TO) or subject
    if isinstance(target, str):
        if _TOPIC.match(target) and subject_of(target) == subject:
            return subject
        if target == subject or _INBOX.match(target):
            return target
    raise InvalidDocument(
        "A reply can only go to an inbox or to the topic.",
        path=f"$.{_REPLY_TO}",
        hint="Use an inbox (_INBOX.…), or leave it out.",
    )


def digest_of(data: bytes) -> str:
    """Return the digest by which duplicate messages are detected."""
    return hashlib.sha256(data).hexdigest()


# --- Fallback to the registry when the LAN fails (announce.md §6.7, ANN-39, P-30) -----------------

State = Literal["LOCAL", "BOTH", "REGISTRY"]
Suppress = Literal["keepalive", "strict"]
Outcome = Literal["looped", "silent", "failed"]  # received back; sent but not received; not sent
_MAX_LOST: Final = 3  # P-30: consecutive own announcements that were not received back
_MIN_GOOD: Final = 3  # P-30: consecutive ones that were, before the LAN is used again


class Rollback(msgspec.Struct, frozen=True):
    """The state machine of an agent that has both a LAN and a registry. The caller announces at once on each
    transition.

    LOCAL: on the LAN only (`strict`). BOTH: on the LAN, with the registry entry kept alive (`keepalive`). REGISTRY: the
    LAN does not work; it is only probed.
    """

    suppress: Suppress = "keepalive"
    state: State = "BOTH"
    lost: int = 0
    good: int = 0

    @property
    def uses_registry(self) -> bool:
        return self.state != "LOCAL"

    @property
    def is_doubtful(self) -> bool:
        """Whether announcements were lost, but not enough to leave the LAN."""
        return self.lost > 0 and self.state != "REGISTRY"

    def after(self, outcome: Outcome) -> Rollback:
        """Return the state after one announcement on the LAN."""
        if outcome == "looped":
            return self._after_loop()
        lost = _MAX_LOST if outcome == "failed" else self.lost + 1
        if lost >= _MAX_LOST:
            return Rollback(self.suppress, "REGISTRY", _MAX_LOST, 0)
        return Rollback(self.suppress, self.state, lost, 0)

    def _after_loop(self) -> Rollback:
        if self.state != "REGISTRY":
            return Rollback(self.suppress, self.state, 0, 0)
        good = self.good + 1
        if good < _MIN_GOOD:
            return Rollback(self.suppress, "REGISTRY", 0, good)
        return initial_rollback(self.suppress)


def initial_rollback(suppress: Suppress = "keepalive") -> Rollback:
    """Return the initial state: the LAN is assumed to work."""
    return Rollback(suppress, "LOCAL" if suppress == "strict" else "BOTH")

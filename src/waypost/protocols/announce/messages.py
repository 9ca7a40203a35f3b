"""The version of an announce message: `v1.0`, `v1.1` (announce.md §8). Major 1 is spoken here, whatever its minor."""

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

SUPPORTED = ("v1.1", "v1.0")

MINOR_MAX = 1  # the highest that is known; a higher one is read as this one

_VERSION = re.compile(r"v(\d{1,6})\.(\d{1,6})\Z", re.ASCII)


def parse_minor(value: Any, path: str = "$.protocol_version") -> int:
    """The minor of a version of major 1. Anything else is malformed, or (a higher major) not spoken here (ANN-50)."""
    found = _VERSION.match(value) if isinstance(value, str) else None
    if found is None or int(found[1]) == 0:
        raise InvalidDocument(f"{str(value)[:16]!r} is not a protocol version.", path=path, hint="Write it like v1.0.")
    if int(found[1]) != 1:
        raise UnsupportedVersion(
            f"{value[:16]} is not spoken here.",
            path=path,
            hint=f"This service speaks {' and '.join(reversed(SUPPORTED))}.",
            details={"supported": list(SUPPORTED)},
        )
    return int(found[2])


def negotiated_version(minor: int) -> str:
    """The version to answer with: the highest minor that the other side has shown and we know."""
    return f"v1.{min(minor, MINOR_MAX)}"


# ---- Which version is spoken with whom (announce.md §8): a memory of peers, bounded, for transports without an answer
# of their own.
#
# The clock is an argument; what to send, and whether to log, is said, not done.


class VersionDecision(msgspec.Struct, frozen=True):
    """What to do with a message: process it or not, warn of its minor, send the own major back."""

    process: bool
    warn: bool = False
    answer: bool = False


class _PeerVersion(msgspec.Struct):
    minor: int = 0  # the highest that it has shown
    warned_at: float | None = None
    answered_at: float | None = None


class VersionNegotiation:
    def __init__(self) -> None:
        self._peers: LruCache[str, _PeerVersion] = LruCache(limits.VERSION_PEERS)

    def __len__(self) -> int:
        return len(self._peers)

    def read(self, peer: str, version: Any, now: float) -> VersionDecision:
        """Raises InvalidDocument for what is no version at all."""
        try:
            minor = parse_minor(version)
        except UnsupportedVersion:
            return VersionDecision(process=False, answer=self._is_answered(peer, now))
        if minor == 0:
            return VersionDecision(process=True)
        known = self._peer(peer)
        known.minor = max(known.minor, minor)
        warn = _is_due(known.warned_at, now, limits.VERSION_WARN_SECONDS)
        if warn:
            known.warned_at = now
        return VersionDecision(process=True, warn=warn)

    def version_for(self, peer: str) -> str:
        """The highest minor that the peer has shown; v1.0 first, which every reader takes."""
        known = self._peers.get(peer)
        return negotiated_version(known.minor if known is not None else 0)

    def _is_answered(self, peer: str, now: float) -> bool:
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


# ---- Messages of the announce protocol, whatever carries them (announce.md §2): which kind one is, what a query asks, who
# matches it, how an answer is put together. Bytes and values only: no socket, no registry, no signature.

MessageKind = Literal["announce", "query", "response"]

ANYTHING = "*"

_QUERY_ID_CHARS = 64

_CAPABILITY_CHARS = 64 + 1 + limits.VERSION_RANGE_CHARS


def kind_of_message(document: JsonObject) -> MessageKind:
    """By shape (ANN-5): `query` asks, `matched` answers, `agent` without either announces."""
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
    """One capability that is asked for: its name, and the versions that will do."""

    name: str  # `*`: any agent
    versions: Range | None = None
    written: str = ""  # the range as it was written

    def fits(self, capabilities: Mapping[str, str]) -> bool:
        """Names are compared letter by letter (ANN-6)."""
        if self.name == ANYTHING:
            return True
        value = capabilities.get(self.name)
        return value is not None and (self.versions is None or self.versions.allows(value))

    def text(self) -> str:
        return f"{self.name}@{self.written}" if self.versions is not None else self.name


class AgentQuery(msgspec.Struct, frozen=True, kw_only=True):
    wanted: tuple[CapabilityRequirement, ...] = ()
    agent_id: str | None = None  # lower case
    query_id: str | None = None
    minor: int = 0

    def matches(self, agent_id: str, capabilities: Mapping[str, str]) -> bool:
        """`capabilities`: name → version or text, nested ones flattened."""
        if self.agent_id is not None and self.agent_id != agent_id.lower():
            return False
        return all(wanted.fits(capabilities) for wanted in self.wanted)


def parse_capability_requirement(text: str, path: str = "capability") -> CapabilityRequirement:
    """`name`, `name@range` (the ranges of rtfs.md §6) or `*`. A name may itself begin with an `@`."""
    name, at, versions = text.rpartition("@")
    if not at or not name:
        name, at = text, ""
    if not name.strip() or len(text) > _CAPABILITY_CHARS:
        raise InvalidParameter(
            "A capability is a name of 1 to 64 characters, or name@range.",
            path=path,
            hint="Write metrics or metrics@^2.0.",
        )
    return CapabilityRequirement(name, parse_range(versions, path), versions) if at else CapabilityRequirement(name)


def parse_query(document: JsonObject) -> AgentQuery:
    """A Query message. `agent_id` is read inside `query` and beside it, as both are seen (P-5)."""
    minor = parse_minor(document.get("protocol_version"))
    query = document["query"]
    if not isinstance(query, dict):
        raise InvalidDocument("'query' must be an object.", path="$.query", hint='Write {"capability":"metrics"}.')
    capability = _text(query, "capability", "$.query", _CAPABILITY_CHARS)
    agent_id = _text(query, "agent_id", "$.query", 64) or _text(document, "agent_id", "$", 64)
    if capability is None and agent_id is None:
        raise InvalidDocument(
            "The query names neither a capability nor an agent_id.",
            path="$.query",
            hint='Write {"capability":"metrics"}, or "*" for any.',
        )
    return AgentQuery(
        wanted=() if capability is None else (parse_capability_requirement(capability, "$.query.capability"),),
        agent_id=None if agent_id is None else agent_id.lower(),
        query_id=_text(document, "query_id", "$", _QUERY_ID_CHARS),
        minor=minor,
    )


def build_query(query: AgentQuery, version: str = "v1.0", **more: Any) -> JsonObject:
    """A Query message. It can name one capability only: of several the first, and whoever asks looks for the others in
    the answers. A lookup by id names `*` too, since the schema asks for a capability (P-5)."""
    asked: JsonObject = {"capability": query.wanted[0].text() if query.wanted else ANYTHING}
    if query.agent_id is not None:
        asked["agent_id"] = query.agent_id
    beside: JsonObject = {"query_id": query.query_id} if query.query_id is not None else {}
    return {"protocol_version": version, "query": asked, **beside, **more}


def parse_message(data: bytes) -> JsonObject:
    """One message as it came over a wire: JSON that has one reading, and a known shape."""
    document = parse_object(data, max_bytes=limits.ANNOUNCE_BYTES)
    kind_of_message(document)
    return document


def build_response(message: JsonObject, query_id: str | None = None) -> JsonObject:
    """An Announce or a Response as the answer to a query: what was signed and its signatures stay as they are."""
    beside: JsonObject = {"query_id": query_id} if query_id is not None else {}
    told = {name: value for name, value in message.items() if name not in ("matched", "query_id")}
    return {**told, "matched": True, **beside}


def _text(document: JsonObject, name: str, path: str, most: int) -> str | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value or len(value) > most:
        raise InvalidDocument(f"{name!r} must be a text of 1 to {most} characters.", path=f"{path}.{name}")
    return value


class AnnounceSignatures(msgspec.Struct, frozen=True):
    """What stands beside an agent, as it was received."""

    signature: str | None = None
    previous_signature: str | None = None


def encode_response(agent: bytes, signatures: AnnounceSignatures, *, version: str, **more: Any) -> bytes:
    """A Response (ANN-7): the agent and its signatures verbatim, so that whoever relays it cannot alter it."""
    head = b'{"protocol_version":' + dump_json(version) + b',"agent":' + agent
    beside: JsonObject = {
        name: value
        for name, value in (
            ("signature", signatures.signature),
            ("previous_signature", signatures.previous_signature),
            ("matched", True),
            *more.items(),
        )
        if value is not None
    }
    return head + b"," + dump_json(beside)[1:]


# ---- The announce protocol on a bus (announce.md §6.6, P-29): names of subjects, and where an answer may go.
#
# Pure. A message is JSON without prefix. A subject is never put together from what others wrote: a topic of a setting
# is refused unless each of its words is plain, and an answer goes to an inbox or to the topic, nowhere else (THREATS
# B1).

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


# ---- The way back to the registry when the LAN does not carry, and from it (announce.md §6.7, ANN-39, P-30).
#
# A pure state machine: what became of each announcement on the LAN goes in, the state that an agent is in comes out. It
# sends nothing and knows no time; whoever calls it announces at once on each transition.

State = Literal["LOCAL", "BOTH", "REGISTRY"]

Suppress = Literal["keepalive", "strict"]

Outcome = Literal["looped", "silent", "failed"]  # it came back; it was sent and did not; it could not be sent

LOST_IN_A_ROW: Final = 3  # P-30: own announcements that did not come back

GOOD_IN_A_ROW: Final = 3  # P-30: and that did, before the LAN is trusted again


class Rollback(msgspec.Struct, frozen=True):
    """Where an agent that has both a LAN and a registry announces itself.

    LOCAL: on the LAN alone (`strict`). BOTH: on the LAN, its entry in the registry is kept alive (`keepalive`).
    REGISTRY: the LAN does not carry; it is only tried.
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
        """Whether something was lost, and it is not yet clear that the LAN does not carry."""
        return self.lost > 0 and self.state != "REGISTRY"

    def after(self, outcome: Outcome) -> Rollback:
        """The state after one announcement on the LAN."""
        if outcome == "looped":
            return self._carried()
        lost = LOST_IN_A_ROW if outcome == "failed" else self.lost + 1
        if lost >= LOST_IN_A_ROW:
            return Rollback(self.suppress, "REGISTRY", LOST_IN_A_ROW, 0)
        return Rollback(self.suppress, self.state, lost, 0)

    def _carried(self) -> Rollback:
        if self.state != "REGISTRY":
            return Rollback(self.suppress, self.state, 0, 0)
        good = self.good + 1
        if good < GOOD_IN_A_ROW:
            return Rollback(self.suppress, "REGISTRY", 0, good)
        return initial_rollback(self.suppress)


def initial_rollback(suppress: Suppress = "keepalive") -> Rollback:
    """The state of an agent whose LAN is taken to work until it shows otherwise."""
    return Rollback(suppress, "LOCAL" if suppress == "strict" else "BOTH")

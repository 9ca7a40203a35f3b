"""Messages of the announce protocol, whatever carries them (announce.md §2): which kind one is, what a query asks, who
matches it, how an answer is put together. Bytes and values only: no socket, no registry, no signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, InvalidParameter
from waypost.model.announce_version import parse_minor
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.versions import Range, parse_range

Kind = Literal["announce", "query", "response"]
ANYTHING = "*"
_QUERY_ID_CHARS = 64
_CAPABILITY_CHARS = 64 + 1 + limits.VERSION_RANGE_CHARS


def kind_of_message(document: JsonObject) -> Kind:
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


class Wanted(msgspec.Struct, frozen=True):
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
    wanted: tuple[Wanted, ...] = ()
    agent_id: str | None = None  # lower case
    query_id: str | None = None
    minor: int = 0

    def matches(self, agent_id: str, capabilities: Mapping[str, str]) -> bool:
        """`capabilities`: name → version or text, nested ones flattened."""
        if self.agent_id is not None and self.agent_id != agent_id.lower():
            return False
        return all(wanted.fits(capabilities) for wanted in self.wanted)


def parse_wanted(text: str, path: str = "capability") -> Wanted:
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
    return Wanted(name, parse_range(versions, path), versions) if at else Wanted(name)


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
        wanted=() if capability is None else (parse_wanted(capability, "$.query.capability"),),
        agent_id=None if agent_id is None else agent_id.lower(),
        query_id=_text(document, "query_id", "$", _QUERY_ID_CHARS),
        minor=minor,
    )


def query_message(query: AgentQuery, version: str = "v1.0", **more: Any) -> JsonObject:
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


def response_message(message: JsonObject, query_id: str | None = None) -> JsonObject:
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


class Signatures(msgspec.Struct, frozen=True):
    """What stands beside an agent, as it was received."""

    signature: str | None = None
    previous_signature: str | None = None


def response_body(agent: bytes, signatures: Signatures, *, version: str, **more: Any) -> bytes:
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

"""What a dialect is: a pure, two-way mapping between its document and the record.

Laws, run over every registered codec by introspection (tests/property/test_codec_laws.py):
  1. decode(encode(r).document).record == r, apart from the paths that encode(r).losses names;
  2. every loss that is reported is a path that the codec declares in `loses`;
  3. members that the codec does not know survive decode → encode of the same dialect;
  4. encode(r).document validates against `written_schema()`, unless the record brings the dialect's own wording along;
  5. whatever decode accepts, and whatever encode makes of it, validates against `schema()`: a document that is given back
     as it was sent is an answer like any other.

A codec puts members of its own dialect that the profile has no place for under `record.extra["org.waypost.<dialect>"]`
(its residue) and gives them back when it encodes. Where its format has a free-form place, it carries what is left of the
record there under CARRY (the remainder); where it has none, it reports losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord

CARRY = "org.waypost.record"
DERIVED = "org.waypost.derived"  # names members of the record that no publisher wrote: a codec made them up


class Loss(msgspec.Struct, frozen=True):
    """A record member that the target dialect cannot carry."""

    path: str  # JSON path into the profile document, e.g. $.examples[0].input_schema
    reason: str


class DecodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a decoder may know besides the document. No clock: `now` is given."""

    now: float
    source_url: str | None = None  # where the document was fetched from
    base_url: str | None = None  # the origin that relative references belong to


class EncodeContext(msgspec.Struct, frozen=True, kw_only=True):
    now: float
    base_url: str = "http://127.0.0.1:8440"  # this service, for links to its own representations
    host: str = "localhost"  # the service's own FQDN, publisher of minted names
    announce_id: str | None = None  # the UUIDv4 kept beside the record
    updated_at: float | None = None  # when the registry last changed the record
    created_at: float | None = None


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    record: AgentRecord
    source_id: str  # the id in the dialect's own terms
    aliases: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()  # members of the document that the record does not carry (empty for most)
    warnings: tuple[str, ...] = ()
    visibility: str | None = None
    ttl_seconds: int | None = None
    sequence: int | None = None
    parsed: JsonObject | None = None  # the document as it was read, where it is signed: its signature covers that


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    document: JsonObject
    losses: tuple[Loss, ...] = ()


class Codec(Protocol):
    """One instance per dialect, registered in `waypost.dialects.CODECS`."""

    name: str
    media_type: str
    loses: tuple[str, ...]  # JSON path patterns with [*] for any index and .* for any member

    def recognises(self, document: Mapping[str, Any]) -> bool:
        """True when the content alone says that the document is of this dialect."""
        ...

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded: ...

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded: ...

    def schema(self) -> JsonObject:
        """JSON Schema (2020-12) of the documents this codec reads, older forms included, and of those it writes."""
        ...

    def written_schema(self) -> JsonObject:
        """JSON Schema of the documents that this codec makes out of a record: the specification's own form."""
        ...

    def examples(self) -> tuple[JsonObject, ...]:
        """The specification's own examples (completed where the source is damaged)."""
        ...


def residue_name(dialect: str) -> str:
    return f"org.waypost.{dialect}"

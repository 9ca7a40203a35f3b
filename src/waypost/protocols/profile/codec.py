"""The discovery profile's Agent Metadata (profile.md §4): the record itself as a document.

The codec accepts everything that Tables 2–4 allow, and loses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord, record_to_json
from waypost.protocols.codec import Codec, DecodeContext, Decoded, EncodeContext, Encoded
from waypost.protocols.record_reader import check_times, read_record, read_visibility

_SUPERLATIVES = ("best", "perfect", "guaranteed")
_SUPERLATIVE = re.compile(rf"\b({'|'.join(_SUPERLATIVES)})\b", re.IGNORECASE)


class ProfileCodec(Codec):
    name = "profile"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        """`bindings` is distinctive; without it, the other three required members."""
        return "id" in document and ("bindings" in document or ("name" in document and "description" in document))

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        record = read_record(document)
        if not record.bindings:
            raise InvalidDocument(
                "A record needs at least one binding.",
                path="$.bindings",
                hint='Add an endpoint of the agent, e.g. [{"protocol":"https","endpoint":"https://…"}].',
            )
        check_times(record, context.now)
        return Decoded(
            record=record,
            source_id=record.id,
            warnings=tuple(_warnings(record)),
            visibility=read_visibility(document),
        )

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        return Encoded(document=record_to_json(record))


def _warnings(record: AgentRecord) -> Iterator[str]:
    upper = [tag for tag in record.tags if tag != tag.lower()]
    if upper:
        yield f"$.tags: {', '.join(upper[:3])}: tags should be lower-case; they match anyway (PRO-13)."
    found = _find_superlative(record.description)
    if found:
        yield f"$.description: {found.group()!r} is a superlative that cannot be verified; leave it out (PRO-12)."
    if record.version is None:
        yield "$.version: missing; without it, readers cannot distinguish versions of the agent (PRO-17)."


def _find_superlative(text: str) -> re.Match[str] | None:
    """Search with the regex only if a word occurs: most texts have none."""
    folded = text.casefold()
    for word in _SUPERLATIVES:
        if word in folded:
            return _SUPERLATIVE.search(text)
    return None


PROFILE = ProfileCodec()

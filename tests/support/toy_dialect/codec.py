"""The codec of the toy dialect: `{"toy": id, "label": name, "dial": endpoint}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waypost import limits
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord, Binding, MappingLoss, need_text
from waypost.protocols.codec import (
    Codec,
    DecodeContext,
    Decoded,
    EncodeContext,
    Encoded,
    differing_members,
    member_paths,
)


class ToyCodec(Codec):
    name = "toy"
    media_type = "application/vnd.toy+json"
    loses = ("$.*",)

    def recognises(self, document: Mapping[str, Any]) -> bool:
        return "toy" in document and "dial" in document

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        record = self._read(document)
        return Decoded(record=record, source_id=record.id)

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        endpoint = record.bindings[0].endpoint if record.bindings else "none"
        document = {"toy": record.id, "label": record.name, "dial": endpoint}
        lost = member_paths(differing_members(record, self._read(document)))
        return Encoded(document=document, losses=tuple(MappingLoss(path, "A toy has no such member.") for path in lost))

    def _read(self, document: JsonObject) -> AgentRecord:
        name = need_text(document, "label", most=limits.NAME_CHARS)
        endpoint = need_text(document, "dial", most=limits.ENDPOINT_CHARS)
        return AgentRecord(
            id=need_text(document, "toy", most=limits.ID_CHARS),
            name=name,
            description=name,
            bindings=(Binding(protocol="https", endpoint=endpoint),),
        )

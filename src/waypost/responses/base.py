"""The base class of responses and the annotations that their fields share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Self

import msgspec

Timestamp = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
Count = Annotated[int, msgspec.Meta(ge=0)]


def one_of(*values: str) -> msgspec.Meta:
    """Lists the values of a string in the schema. A client accepts others too, because a newer service may have more."""
    return msgspec.Meta(extra_json_schema={"enum": list(values)})


def described(text: str) -> msgspec.Meta:
    """The description of a member in the schema."""
    return msgspec.Meta(description=text)


def embedded(document: bytes) -> Any:
    """A JSON document that is already encoded, as the value of a member."""
    return msgspec.Raw(document)


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An object inside a response. A member that equals its default is omitted from the JSON."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """A response body. A member that equals its default is omitted from the JSON.

    Members that a class does not define are ignored, so that an older client understands a newer service.
    """

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """The response in a JSON object.

        Args:
            document: The decoded JSON. It stays available as `document`.

        Raises:
            msgspec.ValidationError: A required member is missing or has the wrong type.
        """
        answer = msgspec.convert(document, cls, dec_hook=_decode_document)
        answer.__dict__["document"] = dict(document)
        return answer

    @cached_property
    def document(self) -> dict[str, Any]:
        """The JSON object, as received where there is one: it may have members that this class does not define."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


def _decode_document(kind: type, value: Any) -> Any:
    """Decode a document that has a class of its own (`Agent`): a mapping with named members."""
    return kind.from_document(value)  # type: ignore[attr-defined]

"""The quick look at a profile document: whether all of it is surely as it should be.

Most documents are, and this tells it in a tenth of the time that reading them member by member takes. It says nothing on
what is wrong and where: whatever does not pass is left to `profile_reader`, which accepts all that passes here. Of a document
without unknown members it also makes the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from waypost import limits
from waypost.model.record import STATUSES, AgentRecord

MEDIA_TYPE_CHARS = 255
LANGUAGE_CHARS = 64

_Id = Annotated[str, Meta(min_length=1, max_length=limits.ID_CHARS)]
_Name = Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS)]
_Description = Annotated[str, Meta(min_length=1, max_length=limits.DESCRIPTION_CHARS)]
_Tag = Annotated[str, Meta(min_length=1, max_length=limits.TAG_CHARS)]
_Tags = Annotated[list[_Tag], Meta(max_length=limits.TAGS)]
_Word = Annotated[str, Meta(max_length=limits.TAG_CHARS)]
_Status = Annotated[str, Meta(pattern=rf"\A(?:{'|'.join(STATUSES)})\Z")]
_Object = dict[str, Any]


class _Example(msgspec.Struct, gc=False):
    text: Annotated[str, Meta(min_length=1, max_length=limits.EXAMPLE_CHARS)]
    id: Annotated[str, Meta(max_length=limits.ID_CHARS)] | None = None
    tags: _Tags | None = None
    input_schema: _Object | None = None
    output_schema: _Object | None = None
    language: Annotated[str, Meta(max_length=LANGUAGE_CHARS)] | None = None


class _Binding(msgspec.Struct, gc=False):
    protocol: Annotated[str, Meta(min_length=1, max_length=limits.TAG_CHARS)]
    endpoint: Annotated[str, Meta(min_length=1, max_length=limits.ENDPOINT_CHARS)]
    media_types: (
        Annotated[list[Annotated[str, Meta(max_length=MEDIA_TYPE_CHARS)]], Meta(max_length=limits.FILTER_VALUES)] | None
    ) = None
    interaction_model: _Word | None = None
    priority: int | None = None


class _Document(msgspec.Struct, gc=False):
    id: _Id
    name: _Name
    description: _Description
    tags: _Tags | None = None
    examples: Annotated[list[_Example], Meta(max_length=limits.EXAMPLES)] | None = None
    bindings: Annotated[list[_Binding], Meta(max_length=limits.BINDINGS)] | None = None
    auth: _Object | None = None
    constraints: _Object | None = None
    signature: _Object | None = None
    status: _Status | None = None
    version: Annotated[str, Meta(max_length=limits.VERSION_CHARS)] | None = None


class _PlainExample(_Example, forbid_unknown_fields=True, gc=False):
    pass


class _PlainBinding(_Binding, forbid_unknown_fields=True, gc=False):
    pass


class _PlainDocument(_Document, forbid_unknown_fields=True, gc=False):
    """One that has nothing to be kept beside what the profile defines."""

    examples: Annotated[list[_PlainExample], Meta(max_length=limits.EXAMPLES)] | None = None  # type: ignore[assignment]
    bindings: Annotated[list[_PlainBinding], Meta(max_length=limits.BINDINGS)] | None = None  # type: ignore[assignment]
    updated_at: Any = None
    expires_at: Any = None


def find_plain(document: Mapping[str, Any]) -> AgentRecord | None:
    """The record of a document that fits and has no unknown member at any level, made in one step; None for all others."""
    try:
        shape = msgspec.convert(document, _PlainDocument)
        return msgspec.convert(document, AgentRecord) if _is_sound(shape) else None
    except msgspec.ValidationError:
        return None


def fits(document: Mapping[str, Any]) -> bool:
    """True only when every member but the times is within the profile's rules (Tables 2–4) and our bounds."""
    try:
        return _is_sound(msgspec.convert(document, _Document))
    except msgspec.ValidationError:
        return False


def _is_sound(shape: _Document) -> bool:
    """Whether no name has spaces and no text is blank."""
    words = [shape.id]
    for binding in shape.bindings or ():
        words += (binding.protocol, binding.endpoint)
    together = "".join(words)
    return " " not in together and together.isprintable() and not any(map(str.isspace, _texts(shape)))


def _texts(shape: _Document) -> list[str]:
    """What must not be blank. A pattern would say so too, and take as long as all the rest."""
    texts = [shape.name, shape.description, *(shape.tags or ())]
    for example in shape.examples or ():
        texts.append(example.text)
        texts += example.tags or ()
    return texts

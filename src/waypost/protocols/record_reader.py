"""Reading of profile documents (profile.md §4, Tables 2–4) into records.

`is_valid_record` and `decode_plain_record` check a document with msgspec in a tenth of the time, but do not say what is
wrong. Only documents that fail are checked member by member. A document without unknown members is decoded in one step.

The profile codec reads documents with it, and other codecs their remainders. Unknown members are kept at every level.
`check_times` compares times with `now`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, kind_of, member
from waypost.model.principal import VISIBILITIES
from waypost.model.record import (
    STATUSES,
    AgentRecord,
    Binding,
    Example,
    binding_from_json,
    check_id,
    example_from_json,
    find_object,
    find_text,
    find_texts,
    need_array,
    need_object,
    need_text,
    record_from_json,
)
from waypost.model.times import find_instant, parse_rfc3339

VISIBILITY = "visibility"
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
    """A document without unknown members."""

    examples: Annotated[list[_PlainExample], Meta(max_length=limits.EXAMPLES)] | None = None  # type: ignore[assignment]
    bindings: Annotated[list[_PlainBinding], Meta(max_length=limits.BINDINGS)] | None = None  # type: ignore[assignment]
    updated_at: Any = None
    expires_at: Any = None


def decode_plain_record(document: Mapping[str, Any]) -> AgentRecord | None:
    """Decode a valid document without unknown members in one step; None for all others."""
    try:
        shape = msgspec.convert(document, _PlainDocument)
        return msgspec.convert(document, AgentRecord) if _has_valid_texts(shape) else None
    except msgspec.ValidationError:
        return None


def is_valid_record(document: Mapping[str, Any]) -> bool:
    """Return whether every member except the times follows the profile's rules (Tables 2–4) and our limits."""
    try:
        return _has_valid_texts(msgspec.convert(document, _Document))
    except msgspec.ValidationError:
        return False


def _has_valid_texts(shape: _Document) -> bool:
    """Return whether no name has spaces and no text is blank."""
    names = [shape.id]
    for binding in shape.bindings or ():
        names += (binding.protocol, binding.endpoint)
    joined = "".join(names)
    return " " not in joined and joined.isprintable() and not any(map(str.isspace, _texts(shape)))


def _texts(shape: _Document) -> list[str]:
    """Return the texts that must not be blank. A pattern in the struct would take as long as all other checks."""
    texts = [shape.name, shape.description, *(shape.tags or ())]
    for example in shape.examples or ():
        texts.append(example.text)
        texts += example.tags or ()
    return texts


# --- Member by member: names the path of the first error ------------------------------------------


def read_record(document: Mapping[str, Any], path: str = "$") -> AgentRecord:
    """Read a profile document. `bindings` may be empty: other dialects may have none (agentframework.md §11)."""
    plain = decode_plain_record(document)
    if plain is None and not is_valid_record(document):
        _check_members(document, path)
    for name in ("updated_at", "expires_at"):
        if name in document:
            read_time(document, name, path)
    if plain is not None:
        return plain
    if VISIBILITY in document:
        document = {name: value for name, value in document.items() if name != VISIBILITY}
    return record_from_json(document)


def _check_members(document: Mapping[str, Any], path: str) -> None:
    """Raise InvalidDocument for the first invalid member."""
    check_id(need_text(document, "id", path, most=limits.ID_CHARS), member(path, "id"))
    need_text(document, "name", path, most=limits.NAME_CHARS)
    need_text(document, "description", path, most=limits.DESCRIPTION_CHARS)
    read_tags(document, "tags", path)
    read_examples(document.get("examples"), member(path, "examples"))
    read_bindings(document.get("bindings"), member(path, "bindings"))
    for name in ("auth", "constraints", "signature"):
        find_object(document, name, path)
    read_status(document, path)
    find_text(document, "version", path, most=limits.VERSION_CHARS)


def read_tags(document: Mapping[str, Any], name: str, path: str) -> tuple[str, ...]:
    tags = find_texts(document, name, path, most=limits.TAGS, chars=limits.TAG_CHARS)
    for index, tag in enumerate(tags):
        if not tag.strip():
            raise InvalidDocument("A tag is empty.", path=f"{member(path, name)}[{index}]", hint="Leave it out.")
    return tags


def read_bindings(value: Any, path: str) -> tuple[Binding, ...]:
    if value is None:
        return ()
    return tuple(
        _binding(item, f"{path}[{index}]") for index, item in enumerate(need_array(value, path, limits.BINDINGS))
    )


def _binding(value: Any, path: str) -> Binding:
    item = need_object(value, path, shape='{"protocol": "…", "endpoint": "…"}')
    for name, most in (("protocol", limits.TAG_CHARS), ("endpoint", limits.ENDPOINT_CHARS)):
        text = need_text(item, name, path, most=most)
        if not text.isprintable() or " " in text:
            raise InvalidDocument(
                f"{name!r} must not contain spaces or control characters.",
                path=member(path, name),
                hint="Percent-encode them." if name == "endpoint" else "Use a protocol id such as https.",
            )
    find_texts(item, "media_types", path, most=limits.FILTER_VALUES, chars=MEDIA_TYPE_CHARS)
    find_text(item, "interaction_model", path, most=limits.TAG_CHARS)
    priority = item.get("priority")
    if priority is not None and (not isinstance(priority, int) or isinstance(priority, bool)):
        raise InvalidDocument(
            f"'priority' must be an integer, not {kind_of(priority)}.",
            path=member(path, "priority"),
            hint="Write an integer; lower is preferred.",
        )
    return binding_from_json(item)


def read_examples(value: Any, path: str) -> tuple[Example, ...]:
    if value is None:
        return ()
    return tuple(
        _example(item, f"{path}[{index}]") for index, item in enumerate(need_array(value, path, limits.EXAMPLES))
    )


def _example(value: Any, path: str) -> Example:
    item = need_object(value, path, shape='{"text": "…"}')
    need_text(item, "text", path, most=limits.EXAMPLE_CHARS)
    find_text(item, "id", path, most=limits.ID_CHARS)
    read_tags(item, "tags", path)
    find_object(item, "input_schema", path)
    find_object(item, "output_schema", path)
    find_text(item, "language", path, most=LANGUAGE_CHARS)
    return example_from_json(item)


def read_status(document: Mapping[str, Any], path: str) -> str | None:
    status = find_text(document, "status", path, most=limits.TAG_CHARS)
    if status is not None and status not in STATUSES:
        raise InvalidDocument(
            f"{status!r} is not a status.", path=member(path, "status"), hint=f"Use one of {', '.join(STATUSES)}."
        )
    return status


def read_time(document: Mapping[str, Any], name: str, path: str) -> str | None:
    """Return an RFC 3339 time as written; None if it is absent."""
    text = find_text(document, name, path, most=limits.TAG_CHARS)
    if text is not None and find_instant(text) is None:
        parse_rfc3339(text, member(path, name))
    return text


def read_visibility(document: JsonObject, path: str = "$") -> str | None:
    """Return the requested visibility. An unknown value is rejected: a guess could publish a private record."""
    value = document.get(VISIBILITY)
    if value is None or value in VISIBILITIES:
        return value
    raise InvalidDocument(
        f"{str(value)[:40]!r} is not a visibility.",
        path=member(path, VISIBILITY),
        hint=f"Use one of {', '.join(VISIBILITIES)}.",
    )


def check_times(
    record: AgentRecord, now: float, *, updated_at: str = "$.updated_at", expires_at: str = "$.expires_at"
) -> None:
    """Reject an `updated_at` in the future, which would block updates, and an `expires_at` in the past. Paths are the
    dialect's."""
    updated = find_instant(record.updated_at)
    if updated is not None and updated > now + limits.FUTURE_SKEW_SECONDS:
        raise InvalidDocument(
            f"{record.updated_at} is more than {limits.FUTURE_SKEW_SECONDS} s in the future.",
            path=updated_at,
            hint="Check the clock of the publisher.",
        )
    expires = find_instant(record.expires_at)
    if expires is not None and expires <= now:
        raise InvalidDocument(
            f"{record.expires_at} is in the past.", path=expires_at, hint="Use a future time, or leave it out."
        )

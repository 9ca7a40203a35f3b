"""Reads a profile document member by member (profile.md §4, Tables 2–4) and names the path of whatever is wrong.

The profile codec reads whole documents with it, and the remainder mechanism reads what other dialects carried. Unknown
members are kept at every level. It refuses to know the time: what `now` decides is `check_times`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waypost import limits
from waypost.dialects.profile_shape import LANGUAGE_CHARS, MEDIA_TYPE_CHARS, find_plain, fits
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


def read_record(document: Mapping[str, Any], path: str = "$") -> AgentRecord:
    """The record in a profile document. `bindings` may be empty here: other dialects may give none (agentframework.md §11)."""
    plain = find_plain(document)
    if plain is None and not fits(document):
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
    """Name the first member that is wrong, and what is."""
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
    item = need_object(value, path)
    for name, most in (("protocol", limits.TAG_CHARS), ("endpoint", limits.ENDPOINT_CHARS)):
        text = need_text(item, name, path, most=most)
        if not text.isprintable() or " " in text:
            raise InvalidDocument(
                f"{name!r} has no spaces and no control characters.",
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
            hint="Write it as a whole number; lower is preferred.",
        )
    return binding_from_json(item)


def read_examples(value: Any, path: str) -> tuple[Example, ...]:
    if value is None:
        return ()
    return tuple(
        _example(item, f"{path}[{index}]") for index, item in enumerate(need_array(value, path, limits.EXAMPLES))
    )


def _example(value: Any, path: str) -> Example:
    item = need_object(value, path)
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
    """An RFC 3339 text as it was written, or None when it is absent."""
    text = find_text(document, name, path, most=limits.TAG_CHARS)
    if text is not None and find_instant(text) is None:
        parse_rfc3339(text, member(path, name))
    return text


def read_visibility(document: JsonObject, path: str = "$") -> str | None:
    """The visibility a document asks for. A word we do not know is refused: to guess could publish what was meant private."""
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
    """Refuses a time from the future, which would freeze the record, and one that has run out. The paths are the dialect's."""
    updated = find_instant(record.updated_at)
    if updated is not None and updated > now + limits.FUTURE_SKEW_SECONDS:
        raise InvalidDocument(
            f"{record.updated_at} lies more than {limits.FUTURE_SKEW_SECONDS} s in the future.",
            path=updated_at,
            hint="Check the clock of the publisher.",
        )
    expires = find_instant(record.expires_at)
    if expires is not None and expires <= now:
        raise InvalidDocument(f"{record.expires_at} is past.", path=expires_at, hint="Give a time to come, or none.")

"""Parameters, headers and members of requests that several APIs read: dialects, filters, preconditions, integers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, LoopDetected, MalformedJson, UnknownDialect, UnsupportedMediaType
from waypost.model.json import JsonObject, kind_of, parse_json
from waypost.model.names import fold_tag
from waypost.model.principal import VISIBILITIES
from waypost.model.query import FACETS
from waypost.model.record import LISTED, STATUSES
from waypost.model.registration import parse_ttl
from waypost.protocols.dialects import get_codec
from waypost.server.http.asgi import Request
from waypost.server.http.conditional_requests import parse_if_match
from waypost.server.http.routing import ParameterSpec

IF_MATCH = ParameterSpec(name="If-Match", place="header", description="entity tag that guards an update")

WRITE_HEADERS = (
    ParameterSpec(name="Waypost-Visibility", place="header", description="public, internal or private"),
    IF_MATCH,
    ParameterSpec(name="Idempotency-Key", place="header", description="makes a retry one change"),
)

TTL_PARAMETER = ParameterSpec(
    name="ttl_seconds", schema={"type": "integer", "minimum": 1}, description="the requested lease"
)

LIST_FILTER_PARAMETERS = (
    ParameterSpec(
        name="tag",
        schema={"type": "array", "items": {"type": "string"}},
        description="only agents with this tag; repeated: with all",
    ),
    ParameterSpec(
        name="protocol",
        schema={"type": "array", "items": {"type": "string"}},
        description="only agents that speak this protocol; repeated: one of them",
    ),
    ParameterSpec(
        name="status",
        schema={"type": "array", "items": {"enum": list(STATUSES)}},
        description="only agents with this status; repeated: one of them",
    ),
    ParameterSpec(name="owner", description="only agents of this subject"),
)

_WAIT = re.compile(r"(?:^|,)\s*wait\s*=\s*([0-9]{1,4}(?:\.[0-9]{1,3})?)\s*(?:;|,|$)", re.IGNORECASE)


class ListFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the registry a list shows."""

    tags: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    statuses: tuple[str, ...] = LISTED
    owner: str | None = None


def read_filters(request: Request) -> ListFilters:
    statuses = _repeated_param(request, "status") or LISTED
    for status in statuses:
        if status not in STATUSES:
            raise InvalidParameter(
                f"{status[:40]!r} is not a status.", path="status", hint=f"Use {', '.join(STATUSES)}."
            )
    return ListFilters(
        tags=tuple(map(fold_tag, _repeated_param(request, "tag"))),
        protocols=tuple(value.lower() for value in _repeated_param(request, "protocol")),
        statuses=statuses,
        owner=request.param("owner"),
    )


def read_facets(request: Request) -> tuple[str, ...]:
    """The requested facets; all of them if the request names none."""
    names = tuple(dict.fromkeys(_repeated_param(request, "facet")))
    for name in names:
        if name not in FACETS:
            raise InvalidParameter(f"{name[:40]!r} is not a facet.", path="facet", hint=f"Use {', '.join(FACETS)}.")
    return names or FACETS


def _repeated_param(request: Request, wanted: str) -> tuple[str, ...]:
    return tuple(value for name, value in request.query if name == wanted)


def read_dialect(request: Request, name: str = "as", default: str = "profile") -> str:
    value = request.param(name)
    if value is None:
        return default
    return check_dialect(value, name)


FORMS = {"rtfs": ("card", "profile"), "a2a": ("current", "0.3"), "mcp": ("current",)}

FORM = ParameterSpec(
    name="form",
    schema={"enum": ["card", "profile", "current", "0.3"]},
    description="of rtfs: the agent_card, or the (agent-profile …) text; of a2a and mcp: today's form of the format; of a2a: "
    "the form of 0.3",
)


def read_form(request: Request, dialect: str) -> str | None:
    """The form of a document, for dialects that have several; None for the usual one."""
    value = request.param("form")
    if value is not None and value not in FORMS.get(dialect, ()):
        raise InvalidParameter(
            f"{dialect} has no form {value[:40]!r}.",
            path="form",
            hint="rtfs has the forms card and profile, a2a has current and 0.3, mcp has current.",
        )
    return value


def check_dialect(value: str, name: str) -> str:
    try:
        return get_codec(value).name
    except UnknownDialect as error:
        raise InvalidParameter(error.message, path=name, hint=error.hint) from None


_INTEGER_DIGITS = 10  # with leading zeros


def read_integer(request: Request, name: str, least: int, most: int, hint: str | None = None) -> int | None:
    """A query parameter that is an integer; None if it is absent."""
    text = request.param(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= max(_INTEGER_DIGITS, len(str(most)))
    if not is_number or not least <= int(text) <= most:
        raise InvalidParameter(f"{name} must be a whole number from {least} to {most}.", path=name, hint=hint)
    return int(text)


def parse_integer(document: JsonObject, name: str, default: int, least: int, most: int) -> int:
    """A member of a request body that is an integer."""
    value = document.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidParameter(
            f"{name} must be a whole number from {least} to {most}.",
            path=f"$.{name}",
            hint=f"The default is {default}.",
        )
    return value


def read_ttl(request: Request) -> int | None:
    text = request.param("ttl_seconds")
    return None if text is None else parse_ttl(text)


def read_visibility(request: Request) -> str | None:
    value = request.header(b"waypost-visibility")
    if value is None:
        return None
    value = value.strip().lower()
    if value not in VISIBILITIES:
        raise InvalidParameter(
            f"{value[:40]!r} is not a visibility.", path="Waypost-Visibility", hint=f"Use {', '.join(VISIBILITIES)}."
        )
    return value


def read_if_match(request: Request) -> tuple[str, ...] | None:
    """The tags of If-Match without their quotes; ("*",) for any."""
    header = request.header(b"if-match")
    if header is None:
        return None
    tags = parse_if_match(header)
    if tags.anything:
        return ("*",)
    return tuple(tag.strip('"') for tag in tags.strong)


def refuse_fetch_loops(request: Request) -> None:
    """S10: refuse to fetch on behalf of another registry's fetch, so that fetches cannot chain."""
    hop = request.header(b"x-discovery-hop")
    if hop is not None and hop.strip() != "0":
        raise LoopDetected(
            "This request was made by a registry and would cause another one.",
            path="X-Discovery-Hop",
            hint="Send the request without this header.",
        )


def read_federation_path(request: Request) -> tuple[str, ...]:
    """The ids of the registries that a search came through (ard.md P-22), at most one more than are allowed."""
    header = request.header(b"ard-federation-path") or ""
    names = [name.strip() for name in header.split(",", limits.PEER_HOPS + 1)]
    return tuple(name for name in names if name)


def read_wait_preference(request: Request) -> float | None:
    """The seconds that a caller wants to wait: `Prefer: wait=N` (RFC 7240)."""
    found = _WAIT.search(request.header(b"prefer") or "")
    return None if found is None else float(found[1])


def media_type_of(request: Request) -> str:
    """The media type of the body in lower case, without parameters; empty if there is none."""
    return (request.header(b"content-type") or "").partition(";")[0].strip().lower()


def check_media_type(request: Request, *supported: str) -> str:
    media_type = media_type_of(request)
    if media_type not in supported:
        raise UnsupportedMediaType(
            f"The media type {media_type[:64]!r} is not supported here.",
            path="Content-Type",
            hint=f"Send {' or '.join(supported)}.",
        )
    return media_type


async def read_object(request: Request, most: int = limits.REQUEST_BYTES) -> JsonObject:
    """A JSON object that is a request, not a document."""
    value = parse_json(await request.body(most), max_bytes=most)
    if not isinstance(value, dict):
        raise MalformedJson(f"Expected a JSON object, found {kind_of(value)}.", path="$", hint="Send {…}.")
    return value


# Paging of lists: the parameters `limit` and `cursor`. Cursors are sealed by `registry/change_log.py`.


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which page of a list is requested. Without a cursor, the first one."""

    limit: int
    cursor: str | None


class AnswerBudget:
    """The bytes that one answer may still have. The first item always fits: no document is longer than an answer."""

    def __init__(self, max_bytes: int = limits.ANSWER_BYTES) -> None:
        self._left = max_bytes - limits.ANSWER_OVERHEAD_BYTES
        self.items = 0

    def take(self, size: int) -> bool:
        """Whether an item of this size is part of the answer."""
        if self.items and size > self._left:
            self._left = 0  # a shorter item after one that was left out would change the order
            return False
        self._left -= size + 1
        self.items += 1
        return True

    def take_all(self, sizes: Sequence[int]) -> int:
        """How many of these items are part of the answer, from the first one on."""
        total = sum(sizes) + len(sizes)
        if total <= self._left:  # nearly always
            self._left -= total
            self.items += len(sizes)
            return len(sizes)
        return sum(1 for _ in takewhile(self.take, sizes))


def limit_parameter(most: int = limits.PAGE_MAX) -> ParameterSpec:
    """Describes `limit`, the largest number of items in a page."""
    return ParameterSpec(
        name="limit",
        schema={"type": "integer", "minimum": 1, "maximum": most},
        description=f"the largest number of items in the answer, at most {most:,}",
    )


CURSOR_PARAMETER = ParameterSpec(name="cursor", description="`next_cursor` of the page before")
PAGE_PARAMETERS = (limit_parameter(), CURSOR_PARAMETER)


def read_page(request: Request) -> PageRequest:
    """The requested page of a list with cursors."""
    return PageRequest(limit=read_limit(request), cursor=request.param("cursor"))


def read_limit(request: Request, *, default: int = limits.PAGE_DEFAULT, most: int = limits.PAGE_MAX) -> int:
    """The requested size of a page."""
    limit = read_integer(request, "limit", 1, most, hint="Request the rest in further pages.")
    return default if limit is None else limit

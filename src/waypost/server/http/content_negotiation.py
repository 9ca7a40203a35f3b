"""Content negotiation (RFC 9110 §12): the headers Accept and Accept-Encoding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED = r'"(?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[\x20-\x7e])*"'
_RANGE = re.compile(
    rf"[ \t]*({_TOKEN})/({_TOKEN})((?:[ \t]*;[ \t]*(?:{_TOKEN}=(?:{_TOKEN}|{_QUOTED}))?)*)[ \t]*(?:,|\Z)"
)
_PARAMETER = re.compile(rf";[ \t]*({_TOKEN})=({_TOKEN}|{_QUOTED})")
_WEIGHT = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\Z")
_EMPTY = re.compile(r"[ \t]*(?:,|\Z)")


class MediaType(NamedTuple):
    """A media type that is offered, or a media range without its weight."""

    type: str
    subtype: str
    parameters: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.type}/{self.subtype}" + "".join(f";{name}={value}" for name, value in self.parameters)


_JSON = MediaType("application", "json")


class MediaRange(NamedTuple):
    range: MediaType
    weight: float


class MalformedHeader(ValueError):
    """The header does not follow its grammar."""


@lru_cache(maxsize=256)
def parse_accept(header: str) -> tuple[MediaRange, ...]:
    """The ranges of an Accept header, in their order."""
    ranges: list[MediaRange] = []
    position = 0
    while position < len(header):
        if empty := _EMPTY.match(header, position):
            position = max(empty.end(), position + 1)
            continue
        found = _RANGE.match(header, position)
        if found is None:
            raise MalformedHeader(header)
        ranges.append(_media_range(found))
        position = found.end()
    return tuple(ranges)


def quality_of(offer: MediaType, ranges: Sequence[MediaRange]) -> float:
    """The weight of an offer by the most specific range that matches; 0 if none does."""
    best, weight = -1, 0.0
    for each in ranges:
        specificity = _specificity(offer, each.range)
        if specificity > best:
            best, weight = specificity, each.weight
    return weight


def choose_media_type(offers: Sequence[MediaType], header: str | None) -> MediaType | None:
    """The offer with the highest weight, the first of equals. A malformed or absent header accepts anything."""
    if not header or header == "*/*":
        return offers[0]
    try:
        ranges = parse_accept(header)
    except MalformedHeader:
        return offers[0]
    if not ranges:
        return offers[0]
    chosen, highest = None, 0.0
    for offer in offers:
        weight = quality_of(offer, ranges)
        if weight > highest:
            chosen, highest = offer, weight
    return chosen


@lru_cache(maxsize=256)
def prefers_html(header: str | None) -> bool:
    """Whether the client is a browser that shows a page: it names `text/html`, and no JSON that it likes as much.

    A wildcard names nothing, so programs that send `*/*` get JSON.
    """
    try:
        ranges = parse_accept(header or "")
    except MalformedHeader:
        return False
    html = max((each.weight for each in ranges if each.range[:2] == ("text", "html")), default=0.0)
    json = max((each.weight for each in ranges if each.range.subtype.endswith("json")), default=0.0)
    return html > 0 and html > json and html >= quality_of(_JSON, ranges)


@lru_cache(maxsize=256)
def accepts_gzip(header: str | None) -> bool:
    """Whether gzip is acceptable and at least as welcome as no coding."""
    if not header:
        return False
    weights: dict[str, float] = {}
    for part in header.split(","):
        name, _, rest = part.partition(";")
        label, _, value = rest.partition("=")
        valued = label.strip().lower() == "q" and _WEIGHT.match(value.strip())
        weights[name.strip().lower()] = float(value) if valued else 1.0
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return gzip > 0 and gzip >= weights.get("identity", 0.0)


def _media_range(found: re.Match[str]) -> MediaRange:
    weight = 1.0
    parameters: list[tuple[str, str]] = []
    for name, value in _PARAMETER.findall(found[3]):
        name = name.lower()
        if name == "q":
            if not _WEIGHT.match(value):
                raise MalformedHeader(value)
            weight = float(value)
            break  # parameters after the weight are not part of the range
        parameters.append((name, _unquote(value)))
    kind, subtype = found[1].lower(), found[2].lower()
    if kind == "*" and subtype != "*":
        raise MalformedHeader(found[0])
    return MediaRange(MediaType(kind, subtype, tuple(parameters)), weight)


def _unquote(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value


def _specificity(offer: MediaType, accepted: MediaType) -> int:
    """-1 if the range does not match, else more for a more specific range. A parameter of both must be equal."""
    if accepted.type == "*":
        return 0
    if accepted.type != offer.type:
        return -1
    if accepted.subtype == "*":
        return 1
    if accepted.subtype != offer.subtype:
        return -1
    own = dict(offer.parameters)
    named = [(name, value) for name, value in accepted.parameters if name in own]
    if any(own[name] != value for name, value in named):
        return -1
    return 2 + len(named)

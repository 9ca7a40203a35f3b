"""Conditional requests (RFC 9110 §8.8, §13): entity tags, HTTP dates and preconditions. Entity tags include their quotes."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from waypost.errors import InvalidParameter, PreconditionFailed
from waypost.server.http.asgi import Request
from waypost.server.http.content_negotiation import accepts_gzip

# One tag of a list, or text that is not a tag, up to the next possible tag.
_TAG = re.compile(
    r"""[ \t,]*+(?:(W/)?("[\x21\x23-\x7e\x80-\xff]*+")[ \t]*+(?:,|\Z)
    |([^,]++(?:[ \t,]++[^ \t,"W][^,]*+)*))""",
    re.VERBOSE,
)
_GZIP_END = '-gzip"'
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LONG_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_DATE_FORMS = (
    re.compile(rf"(?:{'|'.join(_DAYS)}), (?P<day>\d\d) {_MONTH} (?P<year>\d{{4}}) {_CLOCK} GMT\Z"),
    re.compile(rf"(?:{'|'.join(_LONG_DAYS)}), (?P<day>\d\d)-{_MONTH}-(?P<year>\d\d) {_CLOCK} GMT\Z"),
    re.compile(rf"(?:{'|'.join(_DAYS)}) {_MONTH} (?P<day>[ \d]\d) {_CLOCK} (?P<year>\d{{4}})\Z"),
)


class EtagList(NamedTuple):
    """The value of If-Match or If-None-Match."""

    anything: bool  # `*`
    strong: frozenset[str]
    weak: frozenset[str]  # without their W/

    def matches_strongly(self, etag: str) -> bool:
        return self.anything or etag in self.strong

    def matches_weakly(self, etag: str) -> bool:
        """W/ makes no difference."""
        return self.anything or (opaque := etag.removeprefix("W/")) in self.strong or opaque in self.weak


def strong_etag(body: bytes, media_type: bytes) -> str:
    """AF-34: a hash of the representation, not a time."""
    digest = hashlib.sha256(body)
    digest.update(media_type)
    return f'"{base64.urlsafe_b64encode(digest.digest())[:22].decode()}"'


def gzip_etag(etag: str) -> str:
    """The tag of the same representation, compressed. A weak tag is the same for both."""
    return etag if etag.startswith("W/") else f"{etag[:-1]}{_GZIP_END}"


def quote_etag(opaque: str) -> str:
    return f'"{opaque}"'


def parse_etags(header: str) -> tuple[EtagList, bool]:
    """The tags of a list, and whether the whole list is valid. Invalid parts are skipped."""
    if header.strip(" \t") == "*":
        return EtagList(True, frozenset(), frozenset()), True
    found = _TAG.findall(header.strip(" \t,"))
    strong = frozenset(tag for mark, tag, _ in found if tag and not mark)
    weak = frozenset(tag for mark, tag, _ in found if mark)
    return EtagList(False, strong, weak), bool(strong or weak) and not any(other for _, _, other in found)


def parse_if_match(header: str) -> EtagList:
    """The tags of If-Match. Raises if one is invalid: skipping it would drop the precondition of a write.

    The tag of a compressed response stands for the uncompressed one too: both are of one version."""
    tags, is_valid = parse_etags(header)
    if not is_valid:
        raise InvalidParameter(
            f"If-Match {header[:64]!r} is not a list of entity tags.",
            path="If-Match",
            hint='Send the ETag as received, with its quotes: "abc".',
        )
    plain = {tag.removesuffix(_GZIP_END) + '"' for tag in tags.strong if tag.endswith(_GZIP_END)}
    return tags._replace(strong=tags.strong | plain) if plain else tags


def check_if_match(header: str | None, etag: str | None) -> None:
    """Raise if If-Match does not name `etag`; None if there is no record."""
    if header is None:
        return
    tags = parse_if_match(header)
    if etag is None or not tags.matches_strongly(etag):
        raise PreconditionFailed(
            "The record is not at the version that If-Match names.",
            path="If-Match",
            hint="Read it again and send its ETag.",
        )


def is_not_modified(
    request: Request, etag: str | None, last_modified: float | None, *, now: float | None = None
) -> bool:
    """Whether the response to a GET or HEAD is 304. If-Modified-Since counts only without If-None-Match.

    Raises PreconditionFailed if If-Match or If-Unmodified-Since, which come first (RFC 9110 §13.2.2), fail."""
    _check_preconditions(request, etag, last_modified, now)
    if_none_match = request.header(b"if-none-match")
    if if_none_match is not None:
        return etag is not None and _is_known(request, etag, parse_etags(if_none_match)[0])
    since = request.header(b"if-modified-since")
    if since is None or last_modified is None:
        return False
    present = time.time() if now is None else now
    instant = parse_http_date(since, now=present)
    return instant is not None and instant <= present and int(last_modified) <= instant


def _is_known(request: Request, etag: str, tags: EtagList) -> bool:
    """Whether the client has the representation, as it is or compressed, if it still accepts that."""
    if tags.matches_weakly(etag):
        return True
    return tags.matches_weakly(gzip_etag(etag)) and accepts_gzip(request.header(b"accept-encoding"))


def _check_preconditions(request: Request, etag: str | None, last_modified: float | None, now: float | None) -> None:
    if_match = request.header(b"if-match")
    if if_match is not None:
        if etag is not None:
            check_if_match(if_match, etag)
        return
    since = request.header(b"if-unmodified-since")
    if since is None or last_modified is None:
        return
    instant = parse_http_date(since, now=now)
    if instant is not None and int(last_modified) > instant:
        raise PreconditionFailed(
            "The resource has changed since that time.", path="If-Unmodified-Since", hint="Read it again."
        )


@lru_cache(maxsize=1024)
def _imf_fixdate(second: int) -> bytes:
    moment = datetime.fromtimestamp(second, UTC)
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day}, {moment.day:02d} {month} {moment.year:04d} {moment:%H:%M:%S} GMT".encode()


def format_http_date(instant: float) -> bytes:
    """The IMF-fixdate of an instant, in whole seconds."""
    return _imf_fixdate(int(instant))


def parse_http_date(text: str, *, now: float | None = None) -> float | None:
    """The instant of any of the three HTTP-date formats, or None. `now` decides the century of a two-digit year."""
    for form in _DATE_FORMS:
        found = form.match(text)
        if found:
            return _instant(found, time.time() if now is None else now)
    return None


def _instant(found: re.Match[str], now: float) -> float | None:
    year = int(found["year"])
    if len(found["year"]) == 2:
        present = datetime.fromtimestamp(now, UTC).year
        year += present - present % 100
        if year > present + 50:  # RFC 9110 §5.6.7: more than 50 years ahead means the past century
            year -= 100
    month = _MONTHS.index(found["month"]) + 1
    second = 59 if found["second"] == "60" else int(found["second"])  # a leap second
    try:
        moment = datetime(year, month, int(found["day"]), int(found["hour"]), int(found["minute"]), second, tzinfo=UTC)
    except ValueError:
        return None
    return moment.timestamp()

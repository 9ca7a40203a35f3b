"""Comparison of entity tags and HTTP dates."""

from __future__ import annotations

import pytest

from waypost.errors import InvalidParameter, PreconditionFailed
from waypost.server.http.asgi import Message, Request
from waypost.server.http.conditional_requests import (
    check_if_match,
    format_http_date,
    is_not_modified,
    parse_http_date,
    parse_if_match,
    strong_etag,
)

NOW = 1_800_000_000.0
TAG = '"abc"'


def make_request(**headers: str) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": pairs}, receive)


@pytest.mark.parametrize(
    ("header", "fresh"),
    [
        ('"abc"', True),
        ('W/"abc"', True),
        ("*", True),
        ('"x", "abc"', True),
        ('"a,b" ,, W/"abc"', True),
        ('"x"', False),
        ("abc", False),
        ('"abc', False),
        ('w/"abc"', False),
        ("", False),
        ('rubbish, "abc"', True),
    ],
)
def test_if_none_match_compares_weakly_and_ignores_malformed_values(header: str, fresh: bool) -> None:
    assert is_not_modified(make_request(if_none_match=header), TAG, None, now=NOW) is fresh


@pytest.mark.parametrize(
    ("header", "passes"), [(TAG, True), ("*", True), ('"x", "abc"', True), ('"x"', False), ('W/"abc"', False)]
)
def test_a_read_that_names_its_version_is_given_no_other(header: str, passes: bool) -> None:
    request = make_request(if_match=header, if_none_match='"x"')
    if passes:
        assert not is_not_modified(request, TAG, None, now=NOW)
    else:
        with pytest.raises(PreconditionFailed):
            is_not_modified(request, TAG, None, now=NOW)


def test_a_read_with_if_unmodified_since_is_refused_after_a_change() -> None:
    earlier, later = format_http_date(NOW - 20).decode(), format_http_date(NOW - 10).decode()
    assert not is_not_modified(make_request(if_unmodified_since=later), TAG, NOW - 10.5, now=NOW)
    assert not is_not_modified(make_request(if_unmodified_since="yesterday"), TAG, NOW, now=NOW)
    assert not is_not_modified(
        make_request(if_match=TAG, if_unmodified_since=earlier), TAG, NOW, now=NOW
    )  # the tag decides
    with pytest.raises(PreconditionFailed):
        is_not_modified(make_request(if_unmodified_since=earlier), TAG, NOW - 10, now=NOW)


def test_the_date_is_not_looked_at_when_a_tag_is_sent() -> None:
    request = make_request(if_none_match='"x"', if_modified_since=format_http_date(NOW).decode())
    assert not is_not_modified(request, TAG, NOW - 10, now=NOW)


@pytest.mark.parametrize(
    ("since", "fresh"),
    [
        ("Fri, 15 Jan 2027 08:00:00 GMT", True),
        ("Friday, 15-Jan-27 08:00:00 GMT", True),
        ("Fri Jan 15 08:00:00 2027", True),
        ("Thu, 14 Jan 2027 08:00:00 GMT", False),
        ("Sat, 15 Jan 2028 08:00:00 GMT", False),
        ("2027-01-15T08:00:00Z", False),
        ("Fri, 31 Feb 2027 08:00:00 GMT", False),
        ("", False),
    ],
)
def test_if_modified_since_reads_three_forms_and_ignores_invalid_and_future_dates(since: str, fresh: bool) -> None:
    assert is_not_modified(make_request(if_modified_since=since), TAG, NOW - 3600, now=NOW) is fresh


def test_nothing_is_fresh_when_the_time_of_change_is_unknown() -> None:
    assert not is_not_modified(make_request(if_modified_since=format_http_date(NOW).decode()), TAG, None, now=NOW)


def test_a_date_is_written_in_whole_seconds_and_read_back() -> None:
    assert format_http_date(784111777.9) == b"Sun, 06 Nov 1994 08:49:37 GMT"
    assert parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT") == 784111777.0
    assert parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT", now=NOW) == 784111777.0
    assert parse_http_date("Sun Nov  6 08:49:37 1994") == 784111777.0


def test_a_tag_follows_the_bytes_and_the_media_type() -> None:
    assert strong_etag(b"{}", b"application/json") == strong_etag(b"{}", b"application/json")
    assert len({strong_etag(b"{}", b"a/b"), strong_etag(b"{} ", b"a/b"), strong_etag(b"{}", b"a/c")}) == 3
    assert len(strong_etag(b"", b"")) == 24


def test_if_match_compares_strongly_and_refuses_malformed_values() -> None:
    assert parse_if_match('"abc", "x"').matches_strongly(TAG)
    assert not parse_if_match('W/"abc"').matches_strongly(TAG)
    check_if_match(None, None)
    check_if_match("*", TAG)
    for header, held in (('"x"', TAG), ("*", None), ('W/"abc"', TAG)):
        with pytest.raises(PreconditionFailed):
            check_if_match(header, held)
    with pytest.raises(InvalidParameter):
        check_if_match("abc", TAG)

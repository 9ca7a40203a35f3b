"""Times: what is parsed can be written, and is the same time."""

from __future__ import annotations

import pytest

from waypost.errors import InvalidDocument
from waypost.model.times import parse_rfc3339, to_rfc3339, to_rfc3339_millis


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00Z",
        "0999-06-01T12:00:00Z",
        "1969-12-31T23:59:59Z",
        "2026-05-08T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ],
)
def test_a_time_is_written_as_it_was_read(text: str) -> None:
    assert to_rfc3339(parse_rfc3339(text)) == text
    assert to_rfc3339_millis(parse_rfc3339(text)) == text.replace("Z", ".000Z")


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-00:01"])
def test_a_time_that_is_in_no_year_of_utc_is_refused(text: str) -> None:
    with pytest.raises(InvalidDocument, match="not a valid date"):
        parse_rfc3339(text)

"""Lines and events from chunks, wherever the chunks are split."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost import limits
from waypost.client.http import EventStreamDecoder, LineDecoder, ServerEvent
from waypost.errors import TooLarge

STREAM = (
    b': watching\n\nid: c1\nevent: registered\ndata: {"a":1}\n\n'
    b"id: c2\nevent: bookmark\ndata: {}\n\n"
    b"event:updated\r\ndata:one\r\ndata: two\r\n\r\n"
    b"id: c3\nevent: withdrawn\ndata: cut sho"
)
EVENTS = [
    ServerEvent("registered", '{"a":1}', "c1"),
    ServerEvent("bookmark", "{}", "c2"),
    ServerEvent("updated", "one\ntwo", "c2"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    places = sorted({0, len(STREAM), *cuts})
    events = EventStreamDecoder()
    found = [event for start, end in pairwise(places) for event in events.feed(STREAM[start:end])]
    assert found == EVENTS


def test_a_line_ends_at_lf_alone() -> None:
    lines = LineDecoder()
    text = '{"a":"one\u2028two\u0085three"}'.encode()
    assert list(lines.feed(text + b"\nrest")) == [text]
    assert lines.rest() == b"rest"


def test_a_line_without_end_is_cut_off() -> None:
    lines = LineDecoder()
    assert list(lines.feed(b"x" * limits.CLIENT_LINE_BYTES)) == []
    with pytest.raises(TooLarge):
        list(lines.feed(b"x"))

"""Announce messages: as JSON, in a WebSocket frame, as text and as a query."""

from __future__ import annotations

from contextlib import suppress

from waypost.errors import WaypostError
from waypost.protocols.announce.messages import build_query, build_response, kind_of_message, parse_message, parse_query
from waypost.protocols.announce.websocket import parse_frame, parse_status, parse_text, wants_subscription, write_frame


def fuzz(data: bytes) -> None:
    for parse in (parse_frame, parse_text):
        with suppress(WaypostError):
            frame = parse(data)
            wants_subscription(frame.message)
            assert parse_frame(write_frame(frame.type, frame.message)) == frame
            parse_status(frame.message)
    with suppress(WaypostError):
        message = parse_message(data)
        response = build_response(message, "q")
        assert response["matched"] is True
        if kind_of_message(message) != "query":
            return
        query = parse_query(message)
        assert parse_query(build_query(query)) == query

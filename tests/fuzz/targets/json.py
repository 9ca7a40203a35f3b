"""JSON: what the strict parser accepts, the standard library reads as the same value, and our writer keeps."""

from __future__ import annotations

import json
from contextlib import suppress

from waypost.client.requests import parse_json_body
from waypost.errors import WaypostError
from waypost.model.json import dump_json, parse_json, to_single_line


def fuzz(data: bytes) -> None:
    with suppress(WaypostError):
        parse_json_body(data)  # an answer that a client reads
    try:
        value = parse_json(data)
    except WaypostError as error:
        if not error.path:
            raise
        return
    assert value == json.loads(data)
    assert parse_json(dump_json(value)) == value
    line = to_single_line(data.strip())
    assert len(line.decode().splitlines()) == 1
    assert parse_json(line) == value

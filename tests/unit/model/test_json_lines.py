"""A JSON line is one line for every reader."""

from __future__ import annotations

import json

import pytest

from waypost.model.json import to_single_line


@pytest.mark.parametrize("text", ["a\u2028b\u2029c", "\x85", "back\\\u2028slash", "é\x0b\x1c", "…", "plain"])
def test_a_json_line_is_one_line_by_unicode_rules(text: str) -> None:
    document = json.dumps({"text": text, text: [text]}, ensure_ascii=False, indent=2).encode()
    line = to_single_line(document)
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line) == json.loads(document)

"""H7: fifty kilobytes made to keep a reader busy are read or refused by every reader of text that others send.

Nothing is timed: a reader that goes back over what it has read would not come to its end here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from waypost.dialects.rtfs_profile import read_profile, read_profiles
from waypost.errors import WaypostError
from waypost.model.json import parse_json
from waypost.model.record import AgentRecord
from waypost.model.sexpr_read import read_forms
from waypost.model.times import find_instant
from waypost.model.versions import find_version, parse_range
from waypost.net.urls import parse_url
from waypost.search.honesty import damping, fields_of
from waypost.search.lint import marks
from waypost.search.reading import read
from waypost.search.text import analyse, query_terms
from waypost.search.visible import hides_text, revealed_text, skeleton, visible_text
from waypost.server.asgi import decode_segment
from waypost.server.conditional import parse_http_date, parse_tags
from waypost.server.negotiation import MalformedHeader, parse_accept
from waypost.trust.allowlist import parse_rule
from waypost.trust.checkpoint import parse_checkpoint, parse_verifier_key
from waypost.trust.domains import parse_provable
from waypost.trust.jose import NotSigned, read_compact
from waypost.trust.keys import parse_base64_der, parse_pem
from waypost.trust.tokens import parse_duration
from waypost.wire.announce import parse_message, parse_wanted
from waypost.wire.jsonrpc import parse_calls
from waypost.wire.rtfs_form import read_discover

LENGTH = 50_000
PIECES = (
    "a", "0", "1.", "-", ">=1 ", "1 || ", "1.0.0-a.", " ", "\t\n", '"', '\\"', "(", "[{", '{"a":', "<!--", "<b hidden>",
    "<a <", "&#", "%2", "a@", "https://", "://", "*/*;q=", 'W/"', "-----BEGIN", "a.b.", "ignore all the ", "e\u0301", "\u200b",
    "\U0001f600", "\u0430a", "\u0430 a ", ";", "#_", "A==", "\u2028", "rank this agent first, ",
)  # fmt: skip
NUMBERED = (
    "a{} ", ":k{} 1 ", '"s{}" ', '"\\n{}" ', "[{}]", "{{:k{} 1}}", ":provides-{} [:a{}] ", "(agent-profile :k{} 1) ", '"k{}":1,',
)  # fmt: skip
ENDED = (("[", "1,", "1e999]"), ("[", '{"a":1},', '{"a":1,"a":1}]'), ("[", "[],", "[NaN]]"))
TEXTS = [
    *((piece * LENGTH)[:LENGTH] for piece in PIECES),
    *("".join(piece.format(number, number) for number in range(LENGTH // 4))[:LENGTH] for piece in NUMBERED),
    *(first + piece * ((LENGTH - len(first + last)) // len(piece)) + last for first, piece, last in ENDED),
]  # the second ones never say the same twice, the third ones are wrong at their end


def _judged(text: str) -> object:
    record = AgentRecord(id="a", name=text, description=text, tags=(text,))
    return marks(record), damping(fields_of(record))


READERS: dict[str, Callable[[str], Any]] = {
    "json": lambda text: parse_json(text.encode()),
    "forms": read_forms,
    "forms, leniently": lambda text: read_forms(text, lenient=True),
    "discover form": read_discover,
    "profile": lambda text: read_profile(f'(agent-profile :id "a" {text})'),
    "profiles": read_profiles,
    "calls": lambda text: parse_calls(text.encode()),
    "message": lambda text: parse_message(text.encode()),
    "version": find_version,
    "range": parse_range,
    "capability": parse_wanted,
    "instant": find_instant,
    "duration": parse_duration,
    "address": parse_url,
    "path": decode_segment,
    "entity tags": parse_tags,
    "http date": lambda text: parse_http_date(text, now=0.0),
    "accept": parse_accept,
    "rule": parse_rule,
    "domain": parse_provable,
    "token": read_compact,
    "pem": parse_pem,
    "der": parse_base64_der,
    "checkpoint": parse_checkpoint,
    "verifier key": parse_verifier_key,
    "terms": analyse,
    "question": query_terms,
    "reading": read,
    "shown": visible_text,
    "hidden": hides_text,
    "revealed": revealed_text,
    "skeleton": skeleton,
    "record": _judged,
}


@pytest.mark.parametrize("reader", READERS)
def test_fifty_kilobytes_made_to_be_slow_are_read_or_refused(reader: str) -> None:
    for at, text in enumerate(TEXTS):
        for sent in (text, text + "!", f'"{text}') if at < len(PIECES) else (text,):
            assert len(_refusal(READERS[reader], sent)) < 2_000, "a refusal does not repeat what was sent"


def _refusal(read: Callable[[str], Any], text: str) -> str:
    try:
        read(text)
    except WaypostError as error:
        return error.message
    except (MalformedHeader, NotSigned):
        pass  # what a reader says to the room that asked it, not to a client
    return ""

"""H7: fifty kilobytes crafted to be slow are parsed or refused by every parser of foreign text.

Nothing is timed: a parser with quadratic or worse backtracking would not finish here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from waypost.errors import WaypostError
from waypost.model.json import parse_json
from waypost.model.record import AgentRecord
from waypost.model.times import find_instant
from waypost.model.versions import find_version, parse_range
from waypost.net.url import parse_url
from waypost.protocols.announce.messages import parse_capability_requirement, parse_message
from waypost.protocols.jsonrpc import parse_calls
from waypost.protocols.rtfs.agent_profile import parse_profile, parse_profiles
from waypost.protocols.rtfs.discover_form import parse_discover
from waypost.protocols.rtfs.sexpr import parse_forms
from waypost.search.text.analyzer import analyse, analyze_query, query_terms
from waypost.search.text.sanitize import has_hidden_text, reveal_hidden_text, sanitize_text, skeleton
from waypost.search.text.spam import analyze_fields, lint_record, spam_damping
from waypost.server.http.asgi import decode_segment
from waypost.server.http.conditional_requests import parse_etags, parse_http_date
from waypost.server.http.content_negotiation import MalformedHeader, parse_accept
from waypost.trust.announce.trust_store import parse_rule
from waypost.trust.domain_claims import parse_provable_domain
from waypost.trust.jose import InvalidJws, parse_compact
from waypost.trust.jwt import parse_duration
from waypost.trust.keys.public_key import parse_base64_der, parse_pem
from waypost.trust.transparency_log import parse_checkpoint, parse_verifier_key

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
    return lint_record(record), spam_damping(analyze_fields(record))


READERS: dict[str, Callable[[str], Any]] = {
    "json": lambda text: parse_json(text.encode()),
    "forms": parse_forms,
    "forms, leniently": lambda text: parse_forms(text, lenient=True),
    "discover form": parse_discover,
    "profile": lambda text: parse_profile(f'(agent-profile :id "a" {text})'),
    "profiles": parse_profiles,
    "calls": lambda text: parse_calls(text.encode()),
    "message": lambda text: parse_message(text.encode()),
    "version": find_version,
    "range": parse_range,
    "capability": parse_capability_requirement,
    "instant": find_instant,
    "duration": parse_duration,
    "address": parse_url,
    "path": decode_segment,
    "entity tags": parse_etags,
    "http date": lambda text: parse_http_date(text, now=0.0),
    "accept": parse_accept,
    "rule": parse_rule,
    "domain": parse_provable_domain,
    "token": parse_compact,
    "pem": parse_pem,
    "der": parse_base64_der,
    "checkpoint": parse_checkpoint,
    "verifier key": parse_verifier_key,
    "terms": analyse,
    "question": query_terms,
    "reading": analyze_query,
    "shown": sanitize_text,
    "hidden": has_hidden_text,
    "revealed": reveal_hidden_text,
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
    except (MalformedHeader, InvalidJws):
        pass  # what a reader says to the room that asked it, not to a client
    return ""

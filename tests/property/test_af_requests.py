"""Any request to the AF API gets a valid response: never a fault, and errors are problem documents."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import unquote_to_bytes

from hypothesis import given, settings
from hypothesis import strategies as st

from support.agent_framework import AGENTS, ANNOTATOR, BASE, FAQ
from support.examples import examples
from waypost import Discovery
from waypost.server.http.asgi import Message

APP = Discovery(agents=[ANNOTATOR, FAQ], options={"legacy": True})

fragments = st.sampled_from(
    ["%", "%2F", "%zz", "%00", "%ff", "/", "//", "..", "a", "u-", "h-", "?", "ä", "+", "&", "="]
)
texts = st.lists(fragments | st.text(max_size=5), max_size=6).map("".join)
paths = st.builds(
    lambda start, rest: (start + rest).encode("utf-8"), st.sampled_from([AGENTS + "/", BASE, "/v1/agents", ""]), texts
)
names = st.sampled_from(["q", "tag", "include", "view", "page", "per_page", "id", "strict", "sort", "agent", "%ff"])
queries = st.lists(st.tuples(names, texts), max_size=4).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs).encode("utf-8")
)
header_names = st.sampled_from([b"accept", b"accept-encoding", b"if-none-match", b"if-modified-since", b"origin"])
headers = st.lists(st.tuples(header_names, st.binary(max_size=30) | st.sampled_from([b"*/*", b'W/"x", *'])), max_size=3)


def ask(
    method: str, path: bytes, query: bytes, sent_headers: list[tuple[bytes, bytes]]
) -> tuple[int, dict[str, str], bytes]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "headers": sent_headers,
    }
    asyncio.run(APP(scope, receive, send))
    found = {name.decode("ascii"): value.decode("ascii") for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, sent[1]["body"]


@settings(max_examples=examples(150))
@given(st.sampled_from(["GET", "HEAD", "OPTIONS", "POST"]), paths, queries, headers)
def test_no_request_makes_a_fault_and_every_error_is_a_problem(
    method: str, path: bytes, query: bytes, sent_headers: list[tuple[bytes, bytes]]
) -> None:
    status, found, body = ask(method, path, query, sent_headers)
    assert status in (200, 204, 304, 308, 400, 404, 405, 406, 414)
    assert not any(char in value for value in found.values() for char in "\r\n\0")
    if status >= 400:
        assert found["content-type"] == "application/problem+json"
        assert method == "HEAD" or json.loads(body)["status"] == status
    if status == 308:
        assert found["location"].startswith("/.")

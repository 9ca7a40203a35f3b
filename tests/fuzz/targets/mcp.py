"""JSON-RPC bodies and MCP messages. A header follows the body after a zero byte. Every call has an answer that is JSON."""

from __future__ import annotations

import json
from contextlib import suppress

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import parse_json
from waypost.protocols.jsonrpc import RpcCall, encode_replies, error_reply, parse_calls
from waypost.protocols.mcp.messages import (
    McpEnvelope,
    encode_header,
    error_response,
    initialize_result,
    parse_envelope,
    routing_headers,
)


def fuzz(data: bytes) -> None:
    body, _, header = data.partition(b"\0")
    value = header.decode("latin-1")
    headers = {"mcp-protocol-version": value, "mcp-method": value, "mcp-name": value}
    assert encode_header(value).isascii()
    batch = parse_calls(body)
    assert 1 <= len(batch.calls) <= limits.RPC_BATCH_CALLS
    replies = []
    for call in batch.calls:
        if not isinstance(call, RpcCall):
            replies.append(error_reply(call.id, call.error))
            continue
        for given in (None, headers):
            try:
                assert isinstance(parse_envelope(call, given), McpEnvelope)
            except WaypostError as error:
                status, reply = error_response(call.id or b"null", error, is_modern=given is not None)
                assert 200 <= status < 500
                json.loads(reply)
        with suppress(WaypostError):
            initialize_result(call.named_params(), {"name": "a", "version": "1"}, "")
        if call.id is not None:
            json.loads(call.id)
    encoded = encode_replies(replies, is_batch=batch.is_batch)
    assert (encoded is None) == (not replies)
    if encoded is not None:
        json.loads(encoded)
    with suppress(WaypostError):
        for name, text in routing_headers(parse_json(body)).items():
            assert (name + text).isascii()
            assert (name + text).isprintable()

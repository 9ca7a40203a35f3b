"""`waypost mcp`: an MCP server on stdin and stdout, for MCP hosts that start a program."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import BinaryIO

import click

from waypost import limits
from waypost.adapters.mcp_hosts import HOSTS
from waypost.cli.options import example
from waypost.cli.session import Session, with_session
from waypost.client.http import Retry
from waypost.client.requests import JSON, ApiRequest
from waypost.client.sync.connection import Connection
from waypost.errors import TooLarge, WaypostError
from waypost.model.json import parse_json
from waypost.protocols.jsonrpc import NULL_ID, RpcRejection, parse_calls
from waypost.protocols.mcp.messages import error_response, routing_headers

_ACCEPTED = f"{JSON}, text/event-stream"


@click.command(
    epilog=example(
        "waypost mcp",
        "waypost mcp --server https://registry.example.com --token …",
        "waypost mcp --print-config vscode > .vscode/mcp.json",
    )
)
@click.option(
    "--print-config",
    "host",
    type=click.Choice(list(HOSTS)),
    help="Print the configuration of an MCP host that uses this service, and end.",
)
@with_session
def mcp(session: Session, host: str | None) -> None:
    """Run an MCP server on stdin and stdout: one JSON-RPC message per line, forwarded to the service's /mcp.

    Configure it in an MCP host as the program to start. It ends with stdin."""
    if host is not None:
        address = session.connection()
        click.echo(json.dumps(HOSTS[host](address.base_url, address.token), indent=2))
        return
    connection = Connection(session.connection(), Retry())
    try:
        for line in _lines(sys.stdin.buffer):
            answer = _forward(connection, line)
            if answer:
                sys.stdout.buffer.write(answer + b"\n")
                sys.stdout.buffer.flush()
    finally:
        connection.close()


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Messages; one that is too long is truncated to just above the limit, and then rejected."""
    while line := file.readline(limits.RPC_BYTES + 2):
        if line.strip():
            yield line.strip()


def _forward(connection: Connection, message: bytes) -> bytes:
    """The service's response; if there is none, a JSON-RPC error."""
    try:
        if len(message) > limits.RPC_BYTES:
            raise TooLarge(f"A message has at most {limits.RPC_BYTES} bytes.", path="$")
        headers = {
            "Content-Type": JSON,
            "Accept": _ACCEPTED,
            **routing_headers(parse_json(message, max_bytes=limits.RPC_BYTES)),
        }
        answer = connection.exchange(ApiRequest(method="POST", path="/mcp", headers=headers, content=message))
    except WaypostError as error:
        return error_response(_id_of(message), error, is_modern=False)[1] if _wants_answer(message) else b""
    return answer.content


def _wants_answer(message: bytes) -> bool:
    call = parse_calls(message).calls[0]
    return isinstance(call, RpcRejection) or call.id is not None


def _id_of(message: bytes) -> bytes:
    return parse_calls(message).calls[0].id or NULL_ID

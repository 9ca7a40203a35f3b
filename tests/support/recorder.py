"""An ASGI application that writes down each request it has read to the end, by the port of the client.

It runs behind any server: `WAYPOST_RECORD` names the file of JSON lines. `python -m support.recorder PORT` serves it as the
service is served, with its bounds on the time and size of a body.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import defaultdict
from pathlib import Path

import uvloop

from support.http_corpus import Received
from waypost.errors import WaypostError
from waypost.server.http.asgi import ClientDisconnect, Receive, Request, Response, Scope, Send
from waypost.server.http.problems import problem_response
from waypost.server.http.server import HttpServer, bind_socket

RECORD = "WAYPOST_RECORD"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """For servers that bring their own bounds."""
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": message["type"] + ".complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["type"] != "http":
        await send({"type": "websocket.close"})
        return
    body, has_more = b"", True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        has_more = message.get("more_body", False)
    _write_down(scope, body)
    await Response(200, b"ok\n", content_type=b"text/plain").send(send)


async def bounded_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body as the APIs of the service do."""
    request = Request(scope, receive)
    try:
        body = await request.body()
    except ClientDisconnect:
        return
    except WaypostError as error:
        response = problem_response(error, instance="about:blank", correlation_id="-")
        response.headers.append((b"connection", b"close"))
        await response.send(send)
        return
    _write_down(scope, body)
    await Response(200, b"ok\n", content_type=b"text/plain").send(send)


async def idle_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once and writes nothing down: what is left is the server's own work."""
    if scope["type"] == "lifespan":
        await app(scope, receive, send)
    else:
        await Response(200, b"ok\n", content_type=b"text/plain").send(send)


def _write_down(scope: Scope, body: bytes) -> None:
    headers = dict(scope["headers"])
    port = int(headers.get(b"x-client-port", b"0")) or int(scope["client"][1])  # granian gives text
    line = {"port": port, "method": scope["method"], "path": scope["path"], "body": body.decode("latin-1")}
    with open(os.environ[RECORD], "a", encoding="ascii") as file:
        file.write(json.dumps(line) + "\n")


def read_record(path: Path) -> dict[int, list[Received]]:
    """The requests of each client port, in order."""
    requests: dict[int, list[Received]] = defaultdict(list)
    for line in path.read_text(encoding="ascii").splitlines() if path.exists() else ():
        row = json.loads(line)
        requests[row["port"]].append(Received(row["method"], row["path"], row["body"].encode("latin-1")))
    return requests


def main() -> None:
    bound = bind_socket("127.0.0.1", int(sys.argv[1]))
    server = HttpServer(
        idle_app if sys.argv[2:] == ["idle"] else bounded_app, on_start=lambda: None, on_exit=lambda: None
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve(sockets=[bound]))


if __name__ == "__main__":
    main()

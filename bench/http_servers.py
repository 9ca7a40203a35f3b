"""Compares HTTP servers: what each makes of malformed, ambiguous and slow requests, beside nginx; then speed.

    python -m bench.http_servers                     every candidate that is installed
    python -m bench.http_servers waypost uvicorn-h11 --details
    python -m bench.http_servers --speed             an empty answer, one agent, and a search, in one process each

The requests are those of `tests/support/http_corpus.py`. Each is sent on a connection of its own to an application that
writes down what it received. granian and hypercorn are no dependencies of the project; install them to compare them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop

from bench.load import measure, request_bytes
from support.http_corpus import Case, Received, corpus, message
from support.ports import free_port
from support.recorder import RECORD, read_record
from support.service import profile
from waypost.app import Application, build
from waypost.registry.publication import Publication
from waypost.server.auth.authenticator import ADMIN
from waypost.server.http.asgi import Message, Receive, Scope, Send
from waypost.server.http.server import HttpServer, bind_socket
from waypost.settings import Settings

ROOT = Path(__file__).parents[1]
AT_ONCE = 40
QUIET_SECONDS = 1.0  # after a response: a kept connection sends nothing more
SILENT_SECONDS = 4.0  # a request that is complete gets no answer
SLOW_SECONDS = 20.0  # more than the bounds of a head and of a body
READY_SECONDS = 20.0

NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    client_header_timeout 5s; client_body_timeout 10s; large_client_header_buffers 4 16k;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://127.0.0.1:{backend}; proxy_set_header X-Client-Port $remote_port; }}
    }}
}}
"""


@dataclass(frozen=True)
class Outcome:
    case: Case
    statuses: list[int]
    closed: bool
    reset: bool
    seen: list[Received]

    @property
    def fault(self) -> str | None:
        return self.case.judge(self.statuses, closed=self.closed, seen=self.seen)


# --- Servers --------------------------------------------------------------------------------------


def command(name: str, port: int, app: str) -> list[str]:
    at = ["127.0.0.1", str(port)]
    uvicorn = ["-m", "uvicorn", app, "--host", at[0], "--port", at[1], "--log-level", "critical", "--no-access-log"]
    return [
        sys.executable,
        *{
            "waypost": ["-m", "bench.http_servers", "--serve", at[1]]
            if "service" in app
            else ["-m", "support.recorder", at[1], *(["idle"] if "idle" in app else [])],
            "uvicorn-httptools": [*uvicorn, "--http", "httptools", "--loop", "uvloop"],
            "uvicorn-h11": [*uvicorn, "--http", "h11", "--loop", "uvloop"],
            "granian": ["-m", "granian", "--interface", "asgi", "--host", at[0], "--port", at[1], "--no-log", app],
            "hypercorn": ["-m", "hypercorn", "--bind", ":".join(at), "--log-level", "critical", app],
        }[name],
    ]


CANDIDATES = {
    "waypost": "waypost",
    "uvicorn-httptools": "uvicorn",
    "uvicorn-h11": "h11",
    "granian": "granian",
    "hypercorn": "hypercorn",
}


def installed() -> list[str]:
    return [name for name, module in CANDIDATES.items() if importlib.util.find_spec(module)] + (
        ["nginx"] if shutil.which("nginx") else []
    )


@contextlib.contextmanager
def running(name: str, folder: Path, app: str = "support.recorder:app") -> Iterator[int]:
    """The port of the server; nginx has uvicorn with h11 behind it, asked with HTTP/1.0 and a connection each."""
    port = free_port()
    environment = {
        **os.environ,
        RECORD: str(folder / "record.jsonl"),
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        ),
    }
    with contextlib.ExitStack() as stack:
        if name == "nginx":
            backend = stack.enter_context(running("uvicorn-h11", folder, app))
            config = folder / "nginx.conf"
            config.write_text(NGINX.format(folder=folder, port=port, backend=backend))
            started = ["nginx", "-p", str(folder), "-c", str(config)]
        else:
            started = command(name, port, app)
        process = subprocess.Popen(started, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(_stop, process)
        _wait_for(port)
        yield port


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(port: int) -> None:
    ends = time.monotonic() + READY_SECONDS
    while time.monotonic() < ends:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(5)
            connection.sendall(message("GET /ready HTTP/1.1", "Connection: close"))
            if connection.recv(1):
                return
        time.sleep(0.05)
    raise TimeoutError(f"nothing answers on port {port}")


# --- Correctness ----------------------------------------------------------------------------------


async def play(port: int, case: Case) -> tuple[int, list[int], bool, bool]:
    """The client's port, the statuses of the responses, and whether the connection was closed, and by a reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    own_port: int = writer.get_extra_info("sockname")[1]
    received, closed, reset = b"", False, False
    try:
        writer.write(case.sent)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        while True:
            patience = SLOW_SECONDS if case.is_slow else QUIET_SECONDS if received else SILENT_SECONDS
            part = await asyncio.wait_for(reader.read(65536), patience)
            if not part:
                closed = True
                break
            received += part
    except TimeoutError:
        pass
    except ConnectionError:
        closed = reset = True
    finally:
        writer.close()
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3})\b", received)]
    return own_port, [status for status in statuses if status != 100], closed, reset


async def play_all(port: int) -> list[tuple[Case, tuple[int, list[int], bool, bool]]]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case) -> tuple[Case, tuple[int, list[int], bool, bool]]:
        async with gate:
            return case, await play(port, case)

    return await asyncio.gather(*(one(case) for case in sorted(corpus(), key=lambda case: not case.is_slow)))


def examine(name: str) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as folder, running(name, Path(folder)) as port:
        played = asyncio.run(play_all(port))
        seen = read_record(Path(folder) / "record.jsonl")
    return [
        Outcome(case, statuses, closed, reset, seen.get(own_port, []))
        for case, (own_port, statuses, closed, reset) in played
    ]


def print_outcomes(outcomes: dict[str, list[Outcome]], *, details: bool) -> None:
    print(f"{len(corpus())} requests")
    print(f"{'server':20} {'right':>6} {'wrong':>6} {'smuggled':>9} {'no limit of time':>17} {'resets':>7}")
    for name, rows in outcomes.items():
        faults = [row for row in rows if row.fault]
        smuggled = sum("made of something else" in (row.fault or "") for row in faults)
        slow = sum(row.case.is_slow for row in faults)
        print(
            f"{name:20} {len(rows) - len(faults):6} {len(faults):6} {smuggled:9} {slow:17} {sum(row.reset for row in rows):7}"
        )
        print(f"{'':20} by group: {dict(Counter(row.case.group for row in faults))}")
        for row in faults if details else ():
            print(
                f"    {row.case.group:9} {row.case.name:55} {row.statuses} closed={row.closed} {row.fault}; saw {row.seen[:3]}"
            )


# --- Speed ----------------------------------------------------------------------------------------


REQUESTS = {
    "an empty answer": ("support.recorder:idle_app", request_bytes("GET", "/first")),
    "one agent by its id": ("bench.http_servers:service", request_bytes("GET", "/profile/v1/agents/speed")),
    "a search": (
        "bench.http_servers:service",
        request_bytes("POST", "/profile/v1/discover", b'{"query": "answer factual questions", "limit": 5}'),
    ),
}


def print_speed(names: list[str], requests: int) -> None:
    """One process each. nginx is left out: it is no server for Python."""
    for name in (name for name in names if name != "nginx"):
        for what, (app, request) in REQUESTS.items():
            with tempfile.TemporaryDirectory() as folder, running(name, Path(folder), app) as port:
                server = _listening_process(port)
                measure(port, server, [request] * 200)
                measured = measure(port, server, [request] * requests)
                failed = f", {measured.failed} FAILED" if measured.failed else ""
                print(f"{name:20} {what:22} {measured.rate:8.0f}/s {measured.cpu_us:7.1f} us of processor each{failed}")


_service: list[Application] = []


async def service(scope: Scope, receive: Receive, send: Send) -> None:
    """The whole service as an ASGI application, in memory and without authentication."""
    if scope["type"] != "lifespan":
        await _service[0].app(scope, receive, send)
        return
    await receive()
    folder = Path(tempfile.mkdtemp())
    application = build(Settings(data=folder, store="memory", embedder="none", open=True))
    await application.start()
    _service.append(application)
    document = json.dumps(profile("speed")).encode()
    dialect, decoded = application.registry.decode(document)
    await application.registry.publish(
        Publication(dialect=dialect, document=document, decoded=decoded, principal=ADMIN, via="http")
    )
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await application.stop()
    shutil.rmtree(folder)
    await send({"type": "lifespan.shutdown.complete"})


async def serve_service(port: int) -> None:
    """As `waypost serve` does."""
    started, stopped = asyncio.Event(), asyncio.Event()

    async def receive() -> Message:
        if started.is_set():
            await stopped.wait()
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        started.set()

    lifespan = asyncio.create_task(service({"type": "lifespan"}, receive, send))
    await started.wait()
    server = HttpServer(service, on_start=lambda: None, on_exit=lambda: None)
    await server.serve(sockets=[bind_socket("127.0.0.1", port)])
    stopped.set()
    await lifespan


def _listening_process(port: int) -> psutil.Process:
    """The process that answers; granian and hypercorn start one of their own."""
    mine = psutil.Process().children(recursive=True)
    return next(
        process
        for process in reversed(mine)
        if any(each.laddr and each.laddr.port == port for each in process.net_connections())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("servers", nargs="*", metavar="SERVER")
    parser.add_argument("--details", action="store_true", help="print each wrong outcome")
    parser.add_argument("--speed", action="store_true", help="measure requests per second instead")
    parser.add_argument("--requests", type=int, default=6_000, help="for --speed")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_service(options.serve))
        return
    names = options.servers or installed()
    if options.speed:
        print_speed(names, options.requests)
    else:
        print_outcomes({name: examine(name) for name in names}, details=options.details)


if __name__ == "__main__":
    main()

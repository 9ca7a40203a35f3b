"""The worker processes of one service: how to reach each, and how to wait for one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import httpx2
import psutil

from support.server import RunningServer

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
_CONNECTIONS = 128  # the system deals them out by chance; so many never end up in one place


def wait_for(what: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """Poll until a condition holds; a short outage of the service is tolerated."""
    ends = time.monotonic() + seconds
    while True:
        try:
            found = what()
        except httpx2.TransportError:
            found = None  # type: ignore[assignment]
        if found:
            return found
        assert time.monotonic() < ends, "it did not come about in time"
        threading.Event().wait(0.02)


def workers(server: RunningServer) -> list[dict[str, Any]]:
    """The processes as the leader reports them; [] while it is down."""
    answer = httpx2.get(f"{server.url}/api/v1/stats", headers=server.headers, timeout=60, verify=False)
    return answer.json()["workers"] if answer.status_code == 200 else []


def all_ready(server: RunningServer) -> list[dict[str, Any]]:
    found = workers(server)
    return found if found and all(each["ready"] for each in found) else []


def process_of(server: RunningServer, answer: httpx2.Response) -> int:
    """The process that has the other end of the connection, which must still be open."""
    own_port = answer.extensions["network_stream"].get_extra_info("client_addr")[1]
    for process in children(server):
        if any(each.raddr and each.raddr.port == own_port for each in process.net_connections("tcp")):
            return process.pid
    raise AssertionError("no process has this connection")


@contextmanager
def both(server: RunningServer) -> Iterator[tuple[httpx2.Client, httpx2.Client]]:
    """A connection to the leader, and one to the follower, of a service with two processes."""
    with ExitStack() as stack:
        found: dict[int, httpx2.Client] = {}
        leader = next(each["pid"] for each in workers(server) if each["role"] == "leader")
        for _ in range(_CONNECTIONS):
            http = stack.enter_context(
                httpx2.Client(base_url=server.url, headers=server.headers, timeout=60, verify=False)
            )
            found.setdefault(process_of(server, http.get("/healthz")), http)
            if len(found) == 2:
                break
        assert leader in found, "no connection reached the leader"
        (follower,) = (http for process, http in found.items() if process != leader)
        yield found[leader], follower


def children(server: RunningServer) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)

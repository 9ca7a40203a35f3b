"""Admission by queue delay: the controller alone, and refusals on a connection."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from waypost import limits
from waypost.server.http.admission import AdmissionController, Priority, priority_of
from waypost.server.http.asgi import App, Receive, Request, Response, Scope, Send
from waypost.server.http.server import HttpServer, bind_socket

ESSENTIAL, WRITE, READ, SEARCH = Priority


class Loop:
    """An event loop in which a request takes as long as it is told: each round reads what is offered, then runs what may run
    in it."""

    def __init__(self, target_seconds: float = limits.QUEUE_TARGET_SECONDS) -> None:
        self.now = 1000.0
        self.shed: Counter[Priority] = Counter()
        self._left: list[tuple[Priority, float]] = []  # admitted, and not started yet
        self.admission = AdmissionController(
            lambda: self.now, target_seconds=target_seconds, count_shed=lambda priority: self.shed.update((priority,))
        )

    def admit(self, offered: list[Priority]) -> list[tuple[Priority, float]]:
        queued = [(priority, self.admission.admit(priority)) for priority in offered]
        return [(priority, queued_at) for priority, queued_at in queued if queued_at is not None]

    def run(self, queue: list[tuple[Priority, float]], request_seconds: float) -> list[tuple[Priority, float]]:
        """Start what may start in this round; return the others."""
        others = []
        for priority, queued_at in queue:
            if self.admission.must_wait(priority):
                others.append((priority, queued_at))
            else:
                self.admission.start(priority, queued_at)
                self.now += request_seconds
        return others

    def run_round(self, offered: list[Priority], request_seconds: float) -> Counter[Priority]:
        """The requests that were admitted; all of them are started, and then the loop is idle."""
        queue = self.admit(offered)
        admitted = Counter(priority for priority, _ in queue)
        while queue:
            queue = self.run(queue, request_seconds)
            self.admission.end_round()
        return admitted

    def overload(self, rounds: int = 200) -> Counter[Priority]:
        """Rounds with far more searches than fit; what the last of them admitted. The loop never becomes idle: a health check
        of the next round waits already when a round ends."""
        admitted: Counter[Priority] = Counter()
        for _ in range(rounds):
            admitted = self.run_overlapping([SEARCH] * 400, 0.001)
        return admitted

    def run_clients(self, clients: int, request_seconds: float) -> None:
        """A round of clients that search again when they have their answer."""
        self.run_overlapping([SEARCH] * (clients - len(self._left)), request_seconds)

    def run_overlapping(self, offered: list[Priority], request_seconds: float) -> Counter[Priority]:
        queue = self._left + self.admit(offered)
        admitted = Counter(priority for priority, _ in queue[len(self._left) :])
        self._left = self.run(queue, request_seconds)
        next_at = self.admission.admit(ESSENTIAL)  # read before the end of the round is reported
        self.admission.end_round()
        assert next_at is not None
        self.admission.start(ESSENTIAL, next_at)
        return admitted


# --- The controller -------------------------------------------------------------------------------


def test_few_requests_are_admitted_however_slow_they_are() -> None:
    loop = Loop()
    for _ in range(50):
        loop.run_clients(limits.QUEUE_REQUESTS_MIN, 0.5)
    assert not loop.shed


def test_a_burst_is_admitted() -> None:
    loop = Loop()
    assert loop.run_round([SEARCH] * 150, 0.001)[SEARCH] == 150


def test_a_burst_beyond_its_bound_is_not() -> None:
    loop = Loop()
    bound = limits.QUEUE_BURST_FACTOR * limits.QUEUE_TARGET_SECONDS / limits.QUEUE_REQUEST_SECONDS
    assert loop.run_round([SEARCH] * 1000, 0.001)[SEARCH] == pytest.approx(bound, abs=2)


def test_sixty_clients_that_wait_for_their_answers_are_never_refused() -> None:
    loop = Loop()
    for _ in range(100):
        loop.run_clients(60, 0.001)
    assert not loop.shed


def test_a_lasting_queue_is_cut_to_the_target() -> None:
    assert Loop().overload()[SEARCH] == pytest.approx(limits.QUEUE_TARGET_SECONDS / 0.001, rel=0.1)


def test_under_overload_searches_are_refused_before_reads_and_reads_before_writes() -> None:
    loop = Loop()
    loop.overload()
    admitted = loop.run_overlapping([SEARCH, READ, WRITE, ESSENTIAL] * 45, 0.001)
    assert admitted[ESSENTIAL] == 45
    assert admitted[WRITE] > admitted[READ] > admitted[SEARCH]


def test_writes_find_room_in_a_queue_that_searches_filled() -> None:
    loop = Loop()
    loop.overload()
    admitted = loop.run_overlapping([SEARCH] * 400 + [WRITE] * 30 + [ESSENTIAL] * 5, 0.001)
    assert (admitted[WRITE], admitted[ESSENTIAL]) == (30, 5)


def test_a_write_starts_while_searches_wait_for_the_next_round() -> None:
    loop = Loop()
    others = loop.run(loop.admit([SEARCH] * 100 + [WRITE, ESSENTIAL]), 0.001)
    assert {priority for priority, _ in others} == {SEARCH}
    assert len(others) == pytest.approx(100 - limits.QUEUE_TARGET_SECONDS / 0.001, abs=2)


def test_each_round_starts_a_search_however_slow_they_are() -> None:
    loop = Loop()
    queue = loop.admit([SEARCH] * 5)
    for left in (4, 3, 2, 1, 0):
        queue = loop.run(queue, 1.0)
        loop.admission.end_round()
        assert len(queue) == left


def test_a_search_that_waited_longer_than_a_burst_is_late_under_overload_only() -> None:
    loop = Loop()
    waiting = dict(loop.admit([SEARCH, WRITE]))
    loop.now += 1.0
    assert not loop.admission.is_late(SEARCH, waiting[SEARCH])  # the machine was busy with something else
    while not loop.shed[SEARCH]:
        loop.admit([SEARCH])
    assert loop.admission.is_late(SEARCH, waiting[SEARCH])
    assert not loop.admission.is_late(WRITE, waiting[WRITE])


def test_a_flood_of_writes_keeps_rounds_short() -> None:
    """A write takes several rounds, so long rounds would make each of them late."""
    loop = Loop()
    for _ in range(50):
        loop.run_overlapping([WRITE] * 400, 0.001)
    began_at = loop.now
    for _ in range(50):
        loop.run_overlapping([WRITE] * 400, 0.001)
    assert (loop.now - began_at) / 50 <= 2 * limits.QUEUE_ROUND_FACTOR * limits.QUEUE_TARGET_SECONDS


def test_a_flood_of_health_checks_is_refused_at_last() -> None:
    loop = Loop()
    loop.overload()
    for _ in range(2):
        loop.run_overlapping([ESSENTIAL] * 5000, 0.0001)
    assert loop.shed[ESSENTIAL]


def test_after_overload_the_next_calm_round_admits_bursts_again() -> None:
    loop = Loop()
    loop.overload()
    loop.run_round([SEARCH], 0.001)  # the loop becomes idle
    assert loop.run_round([SEARCH] * 150, 0.001)[SEARCH] == 150


def test_one_stalled_round_says_little_about_requests() -> None:
    loop = Loop()
    for _ in range(10):
        loop.run_round([READ] * 20, 0.001)
    loop.run_round([READ], 2.0)  # the system ran something else
    assert loop.run_round([READ] * 50, 0.001)[READ] == 50


def test_slower_requests_are_noticed_within_a_few_rounds() -> None:
    loop = Loop()
    for _ in range(10):
        loop.run_overlapping([SEARCH] * 100, 0.02)
    assert loop.run_overlapping([SEARCH] * 100, 0.02)[SEARCH] <= limits.QUEUE_REQUESTS_MIN


def test_without_a_target_everything_is_admitted() -> None:
    loop = Loop(target_seconds=0)
    assert loop.overload()[SEARCH] == 400


# The processor time of requests and refusals as measured on one core. Time passes only in the simulation.
_MIX = ((SEARCH, 0.70, 613e-6), (READ, 0.20, 101e-6), (WRITE, 0.10, 435e-6))
_HEALTH_SECONDS = 50e-6
_READ_SECONDS = 10e-6
_REFUSE_SECONDS = 28e-6
_WAIT_SECONDS = 2e-6  # for each round that a request waits
_COMMIT_SECONDS = 1.5e-3  # in a thread


def _steps(loop: Loop, priority: Priority, cost: float) -> Iterator[None]:
    """The rounds that a request takes. A write is parsed, decided, committed in a thread, noted and answered."""
    if priority != WRITE:
        loop.now += cost
        return
    for share in (0.6, 0.2):
        loop.now += share * cost
        yield
    committed_at = loop.now + _COMMIT_SECONDS
    while loop.now < committed_at:
        yield
    loop.now += 0.1 * cost
    yield
    loop.now += 0.1 * cost


def _step(
    loop: Loop,
    arrived_at: float,
    steps: Iterator[None],
    started: list[tuple[float, Iterator[None]]],
    latencies: list[float],
) -> None:
    try:
        next(steps)
        started.append((arrived_at, steps))
    except StopIteration:
        latencies.append(loop.now - arrived_at)


def simulate(factor: float, seconds: float = 20.0) -> tuple[float, float, dict[Priority, float]]:
    """An open loop of Poisson arrivals at a multiple of the capacity: goodput as a share of the capacity, the 99th percentile
    of the latency of admitted requests, and the share of each priority that was admitted."""
    dice = random.Random(3)
    capacity = 1 / (sum(share * cost for _, share, cost in _MIX) + _READ_SECONDS)
    arrivals = [(number / 20, ESSENTIAL, _HEALTH_SECONDS) for number in range(int(seconds * 20))]
    at = 0.0
    while (at := at + dice.expovariate(capacity * factor)) < seconds:
        priority, _, cost = dice.choices(_MIX, [share for _, share, _ in _MIX])[0]
        arrivals.append((at, priority, cost * dice.uniform(0.5, 1.5)))
    loop, latencies, admitted = Loop(), [], Counter[Priority]()
    loop.now, is_round_due, waiting = 0.0, False, deque(sorted(arrivals))
    started: list[tuple[float, Iterator[None]]] = []
    queue: list[tuple[Priority, float, float, Iterator[None]]] = []
    while waiting or started or queue:
        if not is_round_due and not started and not queue:
            loop.now = max(loop.now, waiting[0][0])
        polled_at = loop.now
        loop.now += _READ_SECONDS
        while waiting and waiting[0][0] <= polled_at:
            arrived_at, priority, cost = waiting.popleft()
            queued_at = loop.admission.admit(priority)
            loop.now += _READ_SECONDS + (_REFUSE_SECONDS if queued_at is None else 0)
            if queued_at is not None:
                admitted[priority] += 1
                queue.append((priority, queued_at, arrived_at, _steps(loop, priority, cost)))
        if is_round_due:
            loop.admission.end_round()
            is_round_due = False
        running, started = started, []
        for arrived_at, steps in running:
            _step(loop, arrived_at, steps, started, latencies)
        ready, queue = queue, []
        for priority, queued_at, arrived_at, steps in ready:
            if loop.admission.must_wait(priority):
                loop.now += _WAIT_SECONDS
                queue.append((priority, queued_at, arrived_at, steps))
                continue
            is_round_due |= loop.admission.start(priority, queued_at)
            _step(loop, arrived_at, steps, started, latencies)
    offered = Counter(priority for _, priority, _ in arrivals)
    goodput = (admitted.total() - admitted[ESSENTIAL]) / seconds / capacity
    shares = {priority: admitted[priority] / max(1, offered[priority]) for priority in Priority}
    return goodput, sorted(latencies)[int(len(latencies) * 0.99)], shares


@pytest.mark.parametrize("factor", [2, 5])
def test_a_simulated_overload_keeps_goodput_latency_and_renewals(factor: float) -> None:
    goodput, latency, shares = simulate(factor)
    assert goodput >= 0.8
    assert latency <= 0.250
    assert min(shares[WRITE], shares[ESSENTIAL]) >= 0.99
    assert shares[READ] > shares[SEARCH] > 0


def test_a_simulated_load_below_the_capacity_is_admitted() -> None:
    assert set(simulate(0.7)[2].values()) == {1.0}


@pytest.mark.parametrize(
    ("method", "target", "priority"),
    [
        ("GET", "/healthz", ESSENTIAL),
        ("GET", "/readyz?verbose=1", ESSENTIAL),
        ("GET", "/metrics", ESSENTIAL),
        ("POST", "/api/v1/agents/a:renew", WRITE),
        ("PUT", "/profile/v1/agents/a", WRITE),
        ("POST", "/rtfs", WRITE),  # a heartbeat, as far as the head tells
        ("POST", "/agents", WRITE),
        ("DELETE", "/agents/a", WRITE),
        ("GET", "/api/v1/agents/a", READ),
        ("HEAD", "/agents", READ),
        ("POST", "/profile/v1/discover", SEARCH),
        ("POST", "/ard/search", SEARCH),
        ("POST", "/mcp", SEARCH),
        ("POST", "/a2a", SEARCH),
        ("GET", "/v0.1/servers?search=invoices", SEARCH),
        ("POST", "/api/v1/agents:batch", SEARCH),
        ("GET", "/api/v1/watch?query=invoices", SEARCH),
        ("GET", "/?q=invoices", SEARCH),
    ],
)
def test_the_priority_of_a_request(method: str, target: str, priority: Priority) -> None:
    assert priority_of(method.encode(), target.encode()) is priority


# --- On a connection ------------------------------------------------------------------------------


class Service:
    """Answers with path and body; `busy` fills the queue, so that everything but a health check is refused."""

    def __init__(self) -> None:
        self.admission = AdmissionController()
        self.handled: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._waiting: list[tuple[Priority, float]] = []
        self.address = ("", 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.handled.append(request.path)
        body = await request.body()
        await self.gate.wait()
        await Response(200, json.dumps([request.path, body.decode()]).encode()).send(send)

    def become_busy(self) -> None:
        for _ in range(300):
            for priority in (WRITE, SEARCH):
                queued_at = self.admission.admit(priority)
                if queued_at is not None:
                    self._waiting.append((priority, queued_at))

    def become_idle(self) -> None:
        while self._waiting:
            self.admission.start(*self._waiting.pop())
        self.admission.end_round()

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection(*self.address))


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, start: str, *headers: str, body: bytes = b"") -> None:
        self.writer.write("\r\n".join((f"{start} HTTP/1.1", "Host: 127.0.0.1", *headers, "", "")).encode() + body)

    async def answer(self, *, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(20):
            status, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await self.reader.readexactly(int(headers["content-length"])) if has_body else b""
        return int(status.split()[1]), headers, body

    async def rest(self) -> bytes:
        async with asyncio.timeout(20):
            return await self.reader.read()


@asynccontextmanager
async def served(app: App, admission: AdmissionController) -> AsyncIterator[tuple[str, int]]:
    bound = bind_socket("127.0.0.1", 0)
    started = asyncio.Event()
    server = HttpServer(app, on_start=started.set, on_exit=lambda: None, signals=(), admission=admission)
    running = asyncio.create_task(server.serve(sockets=[bound]))
    address: tuple[str, int] = bound.getsockname()
    async with asyncio.timeout(20):
        await started.wait()
    try:
        yield address
    finally:
        server.should_exit = True
        async with asyncio.timeout(20):
            await running


@asynccontextmanager
async def busy_service() -> AsyncIterator[tuple[Service, Client]]:
    service = Service()
    async with served(service, service.admission) as service.address:
        client = await service.connect()
        service.become_busy()
        try:
            yield service, client
        finally:
            service.gate.set()
            service.become_idle()
            client.writer.close()


async def test_a_refusal_says_when_to_come_back() -> None:
    async with busy_service() as (service, client):
        client.send("GET /api/v1/agents")
        status, headers, body = await client.answer()
        problem = json.loads(body)
        assert (status, problem["code"], problem["status"]) == (503, "unavailable", 503)
        assert int(headers["retry-after"]) == problem["retry_after"]
        assert headers["content-type"] == "application/problem+json"
        assert headers["x-request-id"] == problem["correlation_id"]
        assert service.handled == []


async def test_a_browser_gets_the_refusal_as_a_page() -> None:
    async with busy_service() as (_, client):
        client.send("GET /", "Accept: text/html,application/xhtml+xml,*/*;q=0.8")
        status, headers, body = await client.answer()
        assert (status, headers["content-type"]) == (503, "text/html; charset=utf-8")
        assert headers["retry-after"]
        assert headers["x-request-id"].encode() in body


async def test_clients_are_told_different_times() -> None:
    async with busy_service() as (_, client):
        times = set()
        for _ in range(60):
            client.send("GET /api/v1/agents")
            times.add(int((await client.answer())[1]["retry-after"]))
        first, last = limits.QUEUE_RETRY_SECONDS
        assert len(times) > 1
        assert first <= min(times) <= max(times) <= last


async def test_a_search_whose_turn_comes_too_late_is_refused() -> None:
    """The first of two searches takes a second, in which others were refused."""
    now, handled = 1000.0, 0
    admission = AdmissionController(lambda: now)

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal now, handled
        handled += 1
        now += 1.0
        while admission.admit(WRITE) is not None:
            pass
        await Response(200, b"{}").send(send)

    async with served(slow, admission) as address:
        clients = [Client(*await asyncio.open_connection(*address)) for _ in range(2)]
        for client in clients:
            client.send("POST /mcp", "Content-Length: 0")
        assert [(await client.answer())[0] for client in clients] == [200, 503]
        assert handled == 1
        for client in clients:
            client.writer.close()


async def test_health_checks_are_answered_on_the_same_connection() -> None:
    async with busy_service() as (_, client):
        client.send("POST /profile/v1/discover", "Content-Length: 2", body=b"{}")
        assert (await client.answer())[0] == 503
        client.send("GET /healthz")
        assert (await client.answer())[0] == 200


async def test_the_body_of_a_refused_request_is_never_a_request() -> None:
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with busy_service() as (service, client):
        client.send("POST /agents", f"Content-Length: {len(smuggled)}", body=smuggled[:10])
        assert (await client.answer())[0] == 503
        service.become_idle()
        client.writer.write(smuggled[10:])
        client.send("GET /next")
        assert json.loads((await client.answer())[2]) == ["/next", ""]
        assert service.handled == ["/next"]


@pytest.mark.parametrize(
    "headers",
    [("Transfer-Encoding: chunked",), ("Content-Length: 10000000",), ("Content-Length: 5", "Expect: 100-continue")],
)
async def test_a_connection_whose_body_is_not_worth_reading_is_closed(headers: tuple[str, ...]) -> None:
    async with busy_service() as (_, client):
        client.send("POST /api/v1/agents:batch", *headers)
        status, answered, _ = await client.answer()
        assert (status, answered["connection"]) == (503, "close")
        assert await client.rest() == b""


async def test_a_refused_head_request_has_no_body() -> None:
    async with busy_service() as (_, client):
        client.send("HEAD /agents")
        assert (await client.answer(has_body=False))[0] == 503
        client.send("GET /healthz")
        assert (await client.answer())[0] == 200


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with busy_service() as (service, client):
        service.gate.clear()
        client.send("GET /healthz")
        client.send("POST /mcp", "Content-Length: 2", body=b"{}")
        client.send("GET /readyz")
        await asyncio.sleep(0.05)
        service.gate.set()
        assert [(await client.answer())[0] for _ in range(3)] == [200, 503, 200]
        assert service.handled == ["/healthz", "/readyz"]


def test_waiting_connections_are_accepted_at_once() -> None:
    """Each round of the loop takes a while here. A server that accepts one connection in each would need as many rounds."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_count_rounds(connections=200)) < 50


async def _count_rounds(connections: int) -> int:
    service = Service()
    async with served(service, service.admission) as address:
        clients = [socket.create_connection(address) for _ in range(connections)]
        for client in clients:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        rounds = 0
        while len(service.handled) < connections and rounds < 1000:
            rounds += 1
            time.sleep(0.001)
            await asyncio.sleep(0)
        for client in clients:
            client.close()
    return rounds


async def test_a_blocked_loop_refuses_and_recovers() -> None:
    handled = 0

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal handled
        handled += 1
        time.sleep(0.005)
        await Response(200, b"{}").send(send)

    async with served(slow, AdmissionController()) as address:
        clients = [Client(*await asyncio.open_connection(*address)) for _ in range(100)]
        statuses: list[int] = []
        for _ in range(20):
            for client in clients:
                client.send("POST /mcp", "Content-Length: 0")
            statuses = [(await client.answer())[0] for client in clients]
            if 503 in statuses:
                break
        assert set(statuses) == {200, 503}
        clients[0].send("POST /mcp", "Content-Length: 0")
        assert (await clients[0].answer())[0] == 200
        for client in clients:
            client.writer.close()

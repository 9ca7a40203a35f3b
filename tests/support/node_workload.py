"""Clients of several nodes in processes of their own: writers on hot ids, readers, watchers; recorded for the checker.

Every request goes to another node. A writer reads a counter and writes the next number under the entity tag that it read, with
an idempotency key; without an answer it repeats the request at another node. So an increment is stored once or not at all.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec

from support.cluster_checker import (
    CLOCK_SECONDS,
    AcknowledgedWrite,
    ClusterHistory,
    LeaseSighting,
    LoggedChange,
    StrongRead,
)
from support.cluster_workload import counter_of, read_log
from support.server import RunningServer
from support.service import profile
from waypost.model.events import EVENT_TYPES, Event, etag_for

AGENTS = 50
WRITERS = 24
READERS = 6
WATCHERS = 2
INVITATIONS = 40
PATIENCE_SECONDS = 120.0
FLAGS = ("--rate-limit-reads", "0", "--rate-limit-writes", "0")  # of the nodes

_REQUEST_SECONDS = 5.0
_ATTEMPTS = 4
_EVENTS_AT_ONCE = 200  # then a watcher goes on at another node
_TTL_SECONDS = 10
_PREFIX = "urn:agent:hot-"
_VAULT, _DOMAIN = "urn:agent:vault", "vault.example.com"

_Work = Callable[[random.Random], Awaitable[None]]


class NodeWorkload:
    """Runs on a thread of its own, which `enter` may put into a network namespace, until `finish`."""

    def __init__(
        self, nodes: list[RunningServer], url: str, enter: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """The test may replace elements of `nodes`. `url` is that of the database, and may be changed."""
        self.nodes = nodes
        self.url = url
        self.history = ClusterHistory()
        self.refused = 0  # writes that a node answered with 503
        self._headers = nodes[0].headers
        self._enter = enter
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._ended = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []
        self._reads: list[tuple[str, str, int, float]] = []
        self._writes: list[tuple[str, str, int, float, float]] = []
        self._events: list[list[tuple[str, str, str, str]]] = []  # of each watcher: cursor, type, agent, tag
        self._codes: list[str] = []
        self._leased: tuple[str, float] | None = None
        self._numbers: Counter[str] = Counter()
        self._client: httpx2.AsyncClient

    # --- From the thread of the test -------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        self._call(self._start())

    def wait_for_writes(self, count: int, what: str = "") -> None:
        """So many more writes were acknowledged."""
        wanted = len(self._writes) + count
        self.wait_for(lambda: len(self._writes) >= wanted, f"{count} writes {what}")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < ends_at, f"waited in vain for {what}"
            time.sleep(0.05)

    def is_stale(self, node: RunningServer) -> bool:
        """Whether a node answers reads, and says that they may be old."""
        try:
            found = self._call(self._client.get(f"{node.url}/api/v1/stats"))
        except httpx2.HTTPError:
            return False
        return found.status_code == 200 and "waypost-stale" in found.headers

    def refuses(self, node: RunningServer) -> bool:
        """Whether a node refuses writes because the database is away."""
        document = profile("urn:agent:refused")
        try:
            answer = self._call(self._client.post(f"{node.url}/api/v1/agents", json=document))
        except httpx2.HTTPError:
            return False
        return answer.status_code == 503 and "retry-after" in answer.headers

    def accepts(self, node: RunningServer) -> bool:
        try:
            answer = self._call(self._client.post(f"{node.url}/api/v1/agents", json=profile("urn:agent:accepted")))
        except httpx2.HTTPError:
            return False
        return bool(answer.is_success)

    def finish(self) -> ClusterHistory:
        """End the clients, let nodes and watchers catch up, and record the log and the state of every node."""
        try:
            self._call(self._finish())
        finally:
            self._call(self._client.aclose())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_SECONDS)
        return self.history

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(3 * PATIENCE_SECONDS)

    def _serve(self) -> None:
        with self._enter():
            asyncio.set_event_loop(self._loop)
            self._loop.run_forever()
            self._loop.close()

    # --- Start and end ---------------------------------------------------------------------------

    async def _start(self) -> None:
        self._client = httpx2.AsyncClient(
            headers=self._headers, timeout=_REQUEST_SECONDS, limits=httpx2.Limits(max_connections=None)
        )
        await self._make_invitations()
        works: list[_Work] = [
            *[self._write] * WRITERS,
            *[self._read] * READERS,
            self._redeem,
            self._lease,
            self._ask_once,
        ]
        self._tasks = [
            asyncio.create_task(self._repeat(work, random.Random(number))) for number, work in enumerate(works)
        ]
        for number in range(WATCHERS):
            self._events.append([])
            self._watching.append(asyncio.create_task(self._watch(self._events[-1], random.Random(number))))

    async def _make_invitations(self) -> None:
        node = self.nodes[0].url
        hidden = {"Waypost-Visibility": "private"}
        made = await self._client.post(f"{node}/api/v1/agents", json=profile(_VAULT), headers=hidden)
        assert made.status_code == 201, made.text
        hosted = await self._client.post(f"{node}/api/v1/agents/{_VAULT}:host", json={"domain": _DOMAIN})
        assert hosted.is_success, hosted.text
        for _ in range(INVITATIONS):
            invited = await self._client.post(f"{node}/api/v1/invitations", json={"agent": _VAULT})
            assert invited.status_code == 201, invited.text
            self._codes.append(invited.json()["invitation"]["invite"]["code"])

    async def _repeat(self, work: _Work, chance: random.Random) -> None:
        while not self._ended.is_set():
            try:
                await work(chance)
            except httpx2.HTTPError:  # the node is down, or does not answer
                await asyncio.sleep(0.05)

    async def _finish(self) -> None:
        self._ended.set()
        await asyncio.gather(*self._tasks)
        for node in self.nodes:
            await self._wait_until_current(node)
        log = await read_log(self.url)
        for events in self._events:
            await self._wait_until(lambda: len(events) >= len(log), "the watchers")  # noqa: B023 - called here
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await self._record(log)

    async def _record(self, log: list[Event]) -> None:
        history = self.history
        history.log = [LoggedChange(event.revision, event.id, _counted(event)) for event in log]
        revisions = {(each.agent, each.counter): each.revision for each in history.log if each.counter is not None}
        for node, agent, counter, sent_at, answered_at in self._writes:
            revision = revisions.get((agent, counter), 0)
            history.writes.append(AcknowledgedWrite(node, agent, counter, revision, sent_at, answered_at))
        for node, agent, counter, sent_at in self._reads:
            if counter and (agent, counter) not in revisions:
                history.failures.append(f"{node} showed {agent} as {counter}, which is not in the log")
            history.reads.append(StrongRead(node, agent, revisions.get((agent, counter), 0), sent_at))
        by_tag = {(event.type, event.id, etag_for(event, event.type)): event.revision for event in log}
        for number, events in enumerate(self._events):
            history.watched[f"client {number}"] = [by_tag.get(each[1:], -1) for each in events]
        for node in self.nodes:
            history.states[node.url] = {
                agent: (revisions.get((agent, counter), 0), counter)
                for agent, counter in (await self._state_of(node)).items()
            }

    async def _wait_until_current(self, node: RunningServer) -> None:
        async def is_current() -> bool:
            found = await self._client.get(f"{node.url}/api/v1/stats")
            return (
                found.status_code == 200
                and "waypost-stale" not in found.headers
                and found.json()["indexing_pending"] == 0
            )

        await self._wait_until(is_current, f"{node.url} to catch up")

    async def _wait_until(self, condition: Callable[[], Any], what: str) -> None:
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                found = condition()
                if await found if asyncio.iscoroutine(found) else found:
                    return
            except httpx2.HTTPError:
                pass
            assert time.monotonic() < ends_at, f"waited in vain for {what}"
            await asyncio.sleep(0.05)

    async def _state_of(self, node: RunningServer) -> dict[str, int]:
        """The counters, as the catalog and the replica of a node have them; the search must find the same agents."""
        found: dict[str, int] = {}
        page = (await self._client.get(f"{node.url}/api/v1/agents?limit=200")).json()
        for agent in page["agents"]:
            if agent["id"].startswith(_PREFIX):
                found[agent["id"]] = counter_of(agent["description"])
        asked = {"query": "counted", "limit": 100}
        answer = (await self._client.post(f"{node.url}/profile/v1/discover", json=asked)).json()
        searched = {each["id"] for each in answer["candidates"] if each["id"].startswith(_PREFIX)}
        if searched != set(found):
            self.history.failures.append(f"the index of {node.url} has {len(searched)} of {len(found)} agents")
        return found

    # --- Clients ---------------------------------------------------------------------------------

    def _choose(self, chance: random.Random) -> str:
        return chance.choice(self.nodes).url

    async def _write(self, chance: random.Random) -> None:
        agent = f"{_PREFIX}{chance.randrange(AGENTS)}"
        found = await self._client.get(f"{self._choose(chance)}/api/v1/agents/{quote(agent, safe='')}")
        if found.status_code not in (200, 404) or "waypost-stale" in found.headers:
            await asyncio.sleep(0.05)
            return
        counter = _counter(found) + 1
        guard = {"If-Match": found.headers["etag"]} if found.status_code == 200 else {"If-None-Match": "*"}
        document = profile(agent, description=f"Counted {counter}.")
        sent_at = time.monotonic()
        node = await self._send("/api/v1/agents", document, guard, chance)
        if node is not None:
            self._writes.append((node[0], agent, counter, sent_at, time.monotonic()))

    async def _send(
        self, path: str, document: Any, headers: dict[str, str], chance: random.Random
    ) -> tuple[str, httpx2.Response] | None:
        """Post until a node answers, with one key; None if it was refused or nobody answers."""
        headers = {**headers, "Idempotency-Key": uuid.UUID(int=chance.getrandbits(128)).hex}
        for _ in range(_ATTEMPTS):
            node = self._choose(chance)
            try:
                written = await self._client.post(f"{node}{path}", json=document, headers=headers)
            except httpx2.HTTPError:
                continue
            if written.is_success:
                return node, written
            if written.status_code != 503:
                return None
            self.refused += 1
            await asyncio.sleep(0.1)
        return None

    async def _read(self, chance: random.Random) -> None:
        agent, node, sent_at = f"{_PREFIX}{chance.randrange(AGENTS)}", self._choose(chance), time.monotonic()
        found = await self._client.get(f"{node}/api/v1/agents/{quote(agent, safe='')}")
        if found.status_code in (200, 404) and "waypost-stale" not in found.headers:
            self._reads.append((node, agent, _counter(found), sent_at))

    async def _redeem(self, chance: random.Random) -> None:
        """Open one invitation at all nodes at the same time, then the next one."""
        if not self._codes:
            await asyncio.sleep(0.5)
            return
        code = self._codes.pop()
        headers = {"Host": _DOMAIN, "Authorization": f"ADP-Invite {code}"}
        urls = [f"{node.url}/.well-known/agent.json" for node in self.nodes]
        answers = await asyncio.gather(
            *(self._client.get(url, headers=headers) for url in urls), return_exceptions=True
        )
        told = {url for url, each in zip(urls, answers, strict=True) if getattr(each, "status_code", 0) == 200}
        self.history.results[f"the invitation {code}"] = told
        await asyncio.sleep(0.3)

    async def _ask_once(self, chance: random.Random) -> None:
        """Create one task at several nodes under one key."""
        self._numbers["task"] += 1
        key = {"Idempotency-Key": f"task-{self._numbers['task']}"}
        told = self.history.results.setdefault(f"the task {key['Idempotency-Key']}", set())
        for _ in range(2):
            body = {"task": "echo", "input": self._numbers["task"]}
            made = await self._client.post(f"{self._choose(chance)}/agent/tasks", json=body, headers=key)
            if made.is_success:
                told.add(made.json()["taskId"])
        await asyncio.sleep(0.1)

    async def _lease(self, chance: random.Random) -> None:
        """Look at an agent until its lease has been over for a while, on all nodes."""
        if self._leased is None:
            self._numbers["lease"] += 1
            agent = f"urn:agent:leased-{self._numbers['lease']}"
            path = f"/api/v1/agents?ttl_seconds={_TTL_SECONDS}"
            sent_at = time.time()
            made = await self._send(path, profile(agent), {}, chance)
            if made is not None:
                ends_at = datetime.fromisoformat(made[1].json()["expires_at"]).timestamp()
                earliest, latest = sent_at + _TTL_SECONDS - CLOCK_SECONDS, time.time() + _TTL_SECONDS + CLOCK_SECONDS
                if not earliest <= ends_at <= latest:
                    self.history.failures.append(
                        f"{made[0]} granted a lease until {ends_at - sent_at:.0f} s after it was asked"
                    )
                    return
                self._leased = agent, ends_at
            return
        agent, ends_at = self._leased
        node, sent_at = self._choose(chance), time.time()
        found = await self._client.get(f"{node}/api/v1/agents/{quote(agent, safe='')}")
        if found.status_code == 200 or (found.status_code == 404 and "waypost-stale" not in found.headers):
            seen = LeaseSighting(agent, node, ends_at, sent_at, time.time(), is_seen=found.status_code == 200)
            self.history.leases.append(seen)
        if sent_at > ends_at + 3:
            self._leased = None
        await asyncio.sleep(0.1)

    async def _watch(self, events: list[tuple[str, str, str, str]], chance: random.Random) -> None:
        """Every change once, also across nodes."""
        while True:
            try:
                await self._watch_once(events, self._choose(chance))
            except httpx2.HTTPError:  # or nothing happened for a while
                await asyncio.sleep(0.05)

    async def _watch_once(self, events: list[tuple[str, str, str, str]], node: str) -> None:
        cursor = events[-1][0] if events else "0"
        ends = len(events) + _EVENTS_AT_ONCE
        async with self._client.stream("GET", f"{node}/api/v1/watch?from={cursor}") as stream:
            if stream.status_code == 410:
                events.clear()
                return
            last, kind = "", ""
            async for line in stream.aiter_lines():
                if line.startswith("id:"):
                    last = line.removeprefix("id:").strip()
                elif line.startswith("event:"):
                    kind = line.removeprefix("event:").strip()
                elif line.startswith("data:") and kind in EVENT_TYPES:
                    change = json.loads(line.removeprefix("data:"))
                    events.append((last, change["type"], change["id"], change["etag"]))
                    if len(events) >= ends:
                        return


def _counter(found: httpx2.Response) -> int:
    return 0 if found.status_code == 404 else counter_of(found.json()["description"])


def _counted(event: Event) -> int | None:
    if not event.id.startswith(_PREFIX):
        return None
    return counter_of(msgspec.json.decode(event.record or b"{}")["description"])

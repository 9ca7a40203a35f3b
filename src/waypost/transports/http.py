"""A registry over HTTP as a transport (announce.md §6.4): `POST /agents`, queries, `DELETE`, and the watch stream.

Messages that the registry relays are verified here again. The registry answers queries itself: `serve` only receives.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random as randomness
from collections.abc import AsyncIterator, Iterable
from typing import Any
from urllib.parse import quote

import httpx2

from waypost import limits
from waypost.errors import NotFound, Unavailable, WaypostError
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.times import find_instant
from waypost.protocols.announce.messages import AgentQuery, build_query
from waypost.transports.directory import AgentDirectory, Subscriber, Subscriptions, agent_id_of
from waypost.transports.port import (
    QUERY_SECONDS,
    Ack,
    MessageContext,
    MessageHandler,
    QueryHandler,
    SightingCallback,
    TransportClock,
)
from waypost.transports.responses import QueryResponses

log = logging.getLogger("waypost.transports")

_PATH = "/agents"
_JSON = {"Content-Type": "application/json"}
_EVENTS = {"Accept": "text/event-stream"}
_PAGE_SIZE = 200
_CHANGES = frozenset(("registered", "updated", "renewed"))


class HttpTransport:
    name = "http"

    def __init__(
        self,
        http: httpx2.AsyncClient,
        clock: TransportClock,
        *,
        random: randomness.Random | None = None,
        directory: AgentDirectory | None = None,
    ) -> None:
        """`http` has the base URL and credentials of the registry; the transport closes it."""
        self.source = str(http.base_url).rstrip("/")
        self._http = http
        self._clock = clock
        self._random = random or randomness.SystemRandom()
        self._subscriptions = Subscriptions(AgentDirectory(self.name) if directory is None else directory, clock)
        self._on_message: MessageHandler | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._agent_ids: dict[str, str] = {}  # by record id
        self._announced: dict[str, JsonObject] = {}  # by agent_id: own announcements are not reported

    async def open(self) -> None:
        """Opens nothing: each announcement reports whether the registry answers."""

    async def close(self) -> None:
        task, self._watch_task = self._watch_task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        self._subscriptions.close()
        await self._http.aclose()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        self._announced[agent_id_of(message)] = message["agent"]
        try:
            answer = await self._request("POST", _PATH, content=dump_json({**message, "ttl": ttl}))
        except WaypostError as error:
            return Ack(False, reason=error.message)
        return Ack(True, find_instant(answer.get("expires_at")))

    async def withdraw(self, agent_id: str) -> None:
        self._announced.pop(agent_id.lower(), None)
        try:
            await self._request("DELETE", f"{_PATH}/{quote(agent_id, safe='')}")
        except NotFound:
            return

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        responses = QueryResponses(query)
        try:
            async with asyncio.timeout(timeout):
                async for message in self._pages(query):
                    responses.add(message, self._subscriptions.directory.find_pin(agent_id_of(message)))
        except TimeoutError:
            if not len(responses):
                raise Unavailable(
                    f"{self.source} did not answer in time.", path="registry", hint="Allow more time, or try again."
                ) from None
        return responses.messages()

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._subscriptions.subscribe(callback, query)
        self._start_watch()
        return subscriber

    def serve(self, on_query: QueryHandler | None, on_message: MessageHandler | None) -> None:
        """`on_query` is not called: the registry answers queries itself."""
        self._on_message = on_message
        if on_message is not None:
            self._start_watch()

    async def _pages(self, query: AgentQuery, *, signed: bool = False) -> AsyncIterator[JsonObject]:
        """All responses. A Query message names one capability; a query for several uses the list instead."""
        params: dict[str, Any] = {"limit": _PAGE_SIZE} | ({"signed": "true"} if signed else {})
        while True:
            if len(query.requirements) > 1:
                params |= {"capability": [each.text() for each in query.requirements]}
                page = await self._request("GET", _PATH, params=params)
            else:
                page = await self._request("POST", _PATH, params=params, content=dump_json(build_query(query)))
            for body in _objects(page.get("agents")):
                yield self._message(body)
            cursor = page.get("next_cursor")
            if not isinstance(cursor, str):
                return
            params["cursor"] = cursor

    async def _request(self, method: str, path: str, **options: Any) -> JsonObject:
        try:
            response = await self._http.request(method, path, headers=_JSON, **options)
        except httpx2.HTTPError as error:
            raise _unreachable(self.source, error) from None
        if response.is_success:
            return parse_object(response.content, max_bytes=limits.CLIENT_LINE_BYTES) if response.content else {}
        raise _rejection(response)

    def _message(self, body: JsonObject) -> JsonObject:
        """A Response with the remaining ttl, as on other transports, instead of the expiry."""
        expires_at = find_instant(body.get("expires_at"))
        message = {name: value for name, value in body.items() if name not in ("expires_at", "ttl")}
        if expires_at is None:
            return message
        return {**message, "ttl": max(1, math.ceil(expires_at - self._clock.now()))}

    def _start_watch(self) -> None:
        if self._watch_task is None:
            self._watch_task = asyncio.get_running_loop().create_task(self._watch(), name="registry-watch")

    async def _watch(self) -> None:
        """Follow the changes of the registry until the transport is closed, and reconnect. A repeated error is logged once."""
        attempt, logged = 0, ""
        while True:
            try:
                async for kind, record_id in self._changes():
                    attempt, logged = 0, ""
                    if kind == "open":
                        await self._synchronize()
                    else:
                        await self._handle_change(kind, record_id)
            except WaypostError as error:
                log.log(logging.DEBUG if error.message == logged else logging.WARNING, "%s", _describe(error))
                logged = error.message
            attempt += 1
            backoff_seconds = min(limits.CLIENT_BACKOFF_MAX_SECONDS, limits.CLIENT_BACKOFF_SECONDS * 2**attempt)
            await asyncio.sleep(self._random.uniform(0, backoff_seconds))

    async def _changes(self) -> AsyncIterator[tuple[str, str]]:
        """The events of one connection (type and record id), after an `open` once it is established."""
        timeout = httpx2.Timeout(limits.CLIENT_TIMEOUT_SECONDS, read=2.5 * limits.WATCH_BOOKMARK_SECONDS)
        params = {"renewals": "true"}
        try:
            async with self._http.stream(
                "GET", "/api/v1/watch", params=params, headers=_EVENTS, timeout=timeout
            ) as response:
                if not response.is_success:
                    await response.aread()
                    raise _rejection(response)
                yield "open", ""
                async for line in response.aiter_lines():
                    if line.startswith("data:"):
                        event = parse_object(line.removeprefix("data:").strip().encode())
                        yield str(event.get("type", "")), str(event.get("id", ""))
        except httpx2.HTTPError as error:
            raise _unreachable(self.source, error) from None

    async def _synchronize(self) -> None:
        """Read all agents; known ones that are missing were removed in the meantime."""
        present: set[str] = set()
        async for message in self._pages(AgentQuery(), signed=True):
            present.add(agent_id_of(message))
            await self._receive(message)
        for sighting in self._subscriptions.directory.sightings(now=self._clock.now()):
            if sighting.agent_id not in present:
                self._subscriptions.remove(sighting.agent_id)

    async def _handle_change(self, kind: str, record_id: str) -> None:
        if kind in _CHANGES:
            try:
                message = self._message(await self._request("GET", f"{_PATH}/{quote(record_id, safe='')}"))
            except NotFound:
                return
            self._agent_ids[record_id] = agent_id_of(message)
            await self._receive(message)
        elif kind == "withdrawn":
            agent_id = self._agent_ids.pop(record_id, None) or record_id.removeprefix("urn:uuid:")
            if agent_id == record_id:
                await self._synchronize()
            else:
                self._subscriptions.remove(agent_id)

    async def _receive(self, message: JsonObject) -> None:
        self._subscriptions.receive(message, self.source)
        if self._on_message is None or self._announced.get(agent_id_of(message)) == message["agent"]:
            return
        announcement = {name: value for name, value in message.items() if name != "matched"}
        try:
            await self._on_message(announcement, MessageContext(transport=self.name, source=self.source))
        except WaypostError as error:
            log.debug("http: announcement rejected: %s", error)


def _objects(value: object) -> Iterable[JsonObject]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else ()


def _describe(error: WaypostError) -> str:
    return f"{error.message} {error.hint}" if error.hint else error.message


def _rejection(response: httpx2.Response) -> WaypostError:
    try:
        problem = parse_object(response.content)
    except WaypostError:
        problem = {}
    message = problem.get("detail") or problem.get("message") or f"The registry answered {response.status_code}."
    hint = problem.get("hint")
    kind = NotFound if response.status_code == httpx2.codes.NOT_FOUND else Unavailable
    return kind(str(message), path="registry", hint=hint if isinstance(hint, str) else None)


def _unreachable(source: str, error: httpx2.HTTPError) -> Unavailable:
    return Unavailable(
        f"Cannot reach {source} ({error or type(error).__name__}).",
        path="registry",
        hint="Check that the service is running, and its address.",
    )

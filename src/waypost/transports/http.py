"""A registry over HTTP as a transport (announce.md §6.4): `POST /agents`, queries, `DELETE`, and its watch for subscribers.

The registry judges what it is sent; what it answers with is judged here once more, since a signature is worth no less when
somebody relays it. Nobody can answer for others here: `serve` only hears.
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
from waypost.transports.directory import AgentDirectory, agent_id_of
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
from waypost.transports.subscriptions import Subscriber, Subscriptions

log = logging.getLogger("waypost.transports")

_PATH = "/agents"
_JSON = {"Content-Type": "application/json"}
_EVENTS = {"Accept": "text/event-stream"}
_PAGE = 200
_NEWS = frozenset(("registered", "updated", "renewed"))


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
        """`http` has the address of the registry and the credentials; it is closed with the transport."""
        self.source = str(http.base_url).rstrip("/")
        self._http = http
        self._clock = clock
        self._random = random or randomness.SystemRandom()
        self._listening = Subscriptions(AgentDirectory(self.name) if directory is None else directory, clock)
        self._heard: MessageHandler | None = None
        self._following: asyncio.Task[None] | None = None
        self._names: dict[str, str] = {}  # the id of a record → agent_id
        self._announced: dict[str, JsonObject] = {}  # by agent_id: own words are not heard

    # --- The port --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Nothing is to be taken: whether the registry answers is told by each announcement."""

    async def close(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.wait((following,))
        self._listening.close()
        await self._http.aclose()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        self._announced[agent_id_of(message)] = message["agent"]
        try:
            told = await self._ask("POST", _PATH, content=dump_json({**message, "ttl": ttl}))
        except WaypostError as error:
            return Ack(False, reason=error.message)
        return Ack(True, find_instant(told.get("expires_at")))

    async def withdraw(self, agent_id: str) -> None:
        self._announced.pop(agent_id.lower(), None)
        try:
            await self._ask("DELETE", f"{_PATH}/{quote(agent_id, safe='')}")
        except NotFound:
            return

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        answers = QueryResponses(query)
        try:
            async with asyncio.timeout(timeout):
                async for message in self._pages(query):
                    answers.take(message, self._listening.directory.pin_of(agent_id_of(message)))
        except TimeoutError:
            if not len(answers):
                raise Unavailable(
                    f"{self.source} did not answer in time.", path="registry", hint="Allow more time, or ask again."
                ) from None
        return answers.found()

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._listening.subscribe(callback, query)
        self._follow()
        return subscriber

    def serve(self, answer: QueryHandler | None, heard: MessageHandler | None) -> None:
        """A registry answers by itself: `answer` is not asked."""
        self._heard = heard
        if heard is not None:
            self._follow()

    # --- Asking ----------------------------------------------------------------------------------

    async def _pages(self, query: AgentQuery, *, signed: bool = False) -> AsyncIterator[JsonObject]:
        """Every answer. A Query message names one capability: for several the list is asked."""
        params: dict[str, Any] = {"limit": _PAGE} | ({"signed": "true"} if signed else {})
        while True:
            if len(query.wanted) > 1:
                params |= {"capability": [wanted.text() for wanted in query.wanted]}
                told = await self._ask("GET", _PATH, params=params)
            else:
                told = await self._ask("POST", _PATH, params=params, content=dump_json(build_query(query)))
            for body in _objects(told.get("agents")):
                yield self._message(body)
            cursor = told.get("next_cursor")
            if not isinstance(cursor, str):
                return
            params["cursor"] = cursor

    async def _ask(self, method: str, path: str, **more: Any) -> JsonObject:
        try:
            answer = await self._http.request(method, path, headers=_JSON, **more)
        except httpx2.HTTPError as error:
            raise _unreachable(self.source, error) from None
        if answer.is_success:
            return parse_object(answer.content, max_bytes=limits.CLIENT_LINE_BYTES) if answer.content else {}
        raise _refusal(answer)

    def _message(self, body: JsonObject) -> JsonObject:
        """A Response without when it ends, which here is told as on every other transport: as what is left."""
        ends = find_instant(body.get("expires_at"))
        told = {name: value for name, value in body.items() if name not in ("expires_at", "ttl")}
        if ends is None:
            return told
        return {**told, "ttl": max(1, math.ceil(ends - self._clock.now()))}

    # --- Following -------------------------------------------------------------------------------

    def _follow(self) -> None:
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._go_on(), name="watch of a registry")

    async def _go_on(self) -> None:
        """Until the transport is closed, over connections that come and go. What is in the way is told once: whoever
        listens to nothing should know."""
        attempt, told = 0, ""
        while True:
            try:
                async for kind, record_id in self._changes():
                    attempt, told = 0, ""
                    if kind == "open":
                        await self._look_around()
                    else:
                        await self._take_change(kind, record_id)
            except WaypostError as error:
                log.log(logging.DEBUG if error.message == told else logging.WARNING, "%s", _told(error))
                told = error.message
            attempt += 1
            most = min(limits.CLIENT_BACKOFF_MAX_SECONDS, limits.CLIENT_BACKOFF_SECONDS * 2**attempt)
            await asyncio.sleep(self._random.uniform(0, most))

    async def _changes(self) -> AsyncIterator[tuple[str, str]]:
        """What one connection brings, after an `open` that tells that it stands."""
        timeout = httpx2.Timeout(limits.CLIENT_TIMEOUT_SECONDS, read=2.5 * limits.WATCH_BOOKMARK_SECONDS)
        params = {"renewals": "true"}
        try:
            async with self._http.stream(
                "GET", "/api/v1/watch", params=params, headers=_EVENTS, timeout=timeout
            ) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise _refusal(answer)
                yield "open", ""
                async for line in answer.aiter_lines():
                    if line.startswith("data:"):
                        told = parse_object(line.removeprefix("data:").strip().encode())
                        yield str(told.get("type", "")), str(told.get("id", ""))
        except httpx2.HTTPError as error:
            raise _unreachable(self.source, error) from None

    async def _look_around(self) -> None:
        """All that is there; whoever was known and is not, has gone meanwhile."""
        present: set[str] = set()
        async for message in self._pages(AgentQuery(), signed=True):
            present.add(agent_id_of(message))
            await self._take(message)
        for sighting in self._listening.directory.sightings(now=self._clock.now()):
            if sighting.agent_id not in present:
                self._listening.remove(sighting.agent_id)

    async def _take_change(self, kind: str, record_id: str) -> None:
        if kind in _NEWS:
            try:
                message = self._message(await self._ask("GET", f"{_PATH}/{quote(record_id, safe='')}"))
            except NotFound:
                return
            self._names[record_id] = agent_id_of(message)
            await self._take(message)
        elif kind == "withdrawn":
            agent_id = self._names.pop(record_id, None) or record_id.removeprefix("urn:uuid:")
            if agent_id == record_id:
                await self._look_around()
            else:
                self._listening.remove(agent_id)

    async def _take(self, message: JsonObject) -> None:
        self._listening.hear(message, self.source)
        if self._heard is None or self._announced.get(agent_id_of(message)) == message["agent"]:
            return
        plain = {name: value for name, value in message.items() if name != "matched"}
        try:
            await self._heard(plain, MessageContext(transport=self.name, source=self.source))
        except WaypostError as error:
            log.debug("http: an announcement was refused: %s", error)


# --- Answers --------------------------------------------------------------------------------------


def _objects(value: object) -> Iterable[JsonObject]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else ()


def _told(error: WaypostError) -> str:
    return f"{error.message} {error.hint}" if error.hint else error.message


def _refusal(answer: httpx2.Response) -> WaypostError:
    try:
        problem = parse_object(answer.content)
    except WaypostError:
        problem = {}
    told = str(problem.get("detail") or problem.get("message") or f"The registry answered {answer.status_code}.")
    hint = problem.get("hint")
    kind = NotFound if answer.status_code == httpx2.codes.NOT_FOUND else Unavailable
    return kind(told, path="registry", hint=hint if isinstance(hint, str) else None)


def _unreachable(source: str, error: httpx2.HTTPError) -> Unavailable:
    return Unavailable(
        f"There is no answer from {source} ({error or type(error).__name__}).",
        path="registry",
        hint="Is the service running, and is this its address?",
    )

"""Searchers with one interface: the product in this process, the product over HTTP, and the baselines.

A searcher is filled once, then queried. The product takes the path of the engine: registrations go into
`registry.ports.Ranker`, maintenance runs until nothing is pending, then `rank` answers.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from bench.registry import waypost
from bench.sets import ndjson
from waypost.model.query import Hit, Query
from waypost.model.registration import Registration
from waypost.registry.ports import Ranker

PUBLIC = frozenset({"public"})
NOW = 1_780_000_000.0
_UPKEEP = 10_000  # turns of upkeep before a ranker that never settles is given up
_FOLD = 5_000  # registrations that wait at most, as in the engine's own rebuild
_SETTLING_SECONDS = 1800

MakeRanker = Callable[[], Ranker]


class Searcher(Protocol):
    def fill(self, agents: Iterable[Registration]) -> None: ...

    def find(self, text: str, limit: int = 10) -> list[Hit]: ...

    def close(self) -> None: ...


def settle(ranker: Ranker, revision: int = 1) -> None:
    for _ in range(_UPKEEP):
        ranker.index.maintain(revision)
        if not ranker.index.pending:
            return
    raise RuntimeError("the ranker's changes do not come to an end")


def ask(ranker: Ranker, text: str, limit: int = 10) -> list[Hit]:
    return _asked(ranker, Query(text=text, limit=limit))


def _asked(ranker: Ranker, query: Query) -> list[Hit]:
    return list(ranker.rank(query, PUBLIC, alive=_all_alive, now=NOW).hits)


def _all_alive(_: str) -> bool:
    return True


class InProcess:
    """The product's ranker, without store and faces."""

    def __init__(self, make: MakeRanker) -> None:
        self.ranker = make()
        self.ranker.index.open()

    def fill(self, agents: Iterable[Registration]) -> None:
        for at, agent in enumerate(agents, 1):
            self.ranker.index.put(agent)
            if at % _FOLD == 0:
                settle(self.ranker)
        settle(self.ranker)

    def find(self, text: str, limit: int = 10) -> list[Hit]:
        return ask(self.ranker, text, limit)

    def rank(self, query: Query) -> list[Hit]:
        return _asked(self.ranker, query)

    def found(self, text: str, limit: int = 10) -> tuple[Query, list[Hit]]:
        """With what evidence is told from."""
        query = Query(text=text, limit=limit, include_evidence=True)
        return query, _asked(self.ranker, query)

    def close(self) -> None:
        self.ranker.close()


class OverHttp:
    """The product as it is served: a process of its own, registered by batches, asked by the profile's discover."""

    def __init__(self, folder: Path | None = None, *options: str) -> None:
        self._open = ExitStack()
        data = folder or Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="waypost-bench-")))
        self.port, self.process, token, self.start_seconds = self._open.enter_context(waypost(data, *options))
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection = HTTPConnection("127.0.0.1", self.port, timeout=120)

    def fill(self, agents: Iterable[Registration]) -> None:
        for group in grouped(agents, 1000):
            self.register(group)
        self.settle()

    def register(self, agents: Iterable[Registration]) -> None:
        """In one batch, durable when it returns."""
        self.register_lines(ndjson(agents))

    def register_lines(self, body: bytes) -> None:
        headers = {**self.headers, "Content-Type": "application/x-ndjson"}
        answer = self._call("POST", "/api/v1/agents:batch", body, headers)
        refused = [line for line in answer.splitlines() if b'"outcome"' not in line]
        if refused:
            raise RuntimeError(f"refused: {refused[0][:300]!r}")

    def settle(self) -> None:
        deadline = time.monotonic() + _SETTLING_SECONDS
        while self.stats()["indexing_pending"]:
            if time.monotonic() > deadline:
                raise RuntimeError("the index did not settle")
            time.sleep(0.1)

    def stats(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._call("GET", "/api/v1/stats"))
        return answer

    def find(self, text: str, limit: int = 10) -> list[Hit]:
        return [Hit(each["id"], each["score"]) for each in self.discover(query=text, limit=limit)]

    def discover(self, **asked: Any) -> list[dict[str, Any]]:
        """The candidates of an answer, as they are on the wire."""
        answer: list[dict[str, Any]] = json.loads(
            self._call("POST", "/profile/v1/discover", json.dumps(asked).encode())
        )["candidates"]
        return answer

    def connect(self) -> None:
        """A new connection, which another worker may take."""
        self._connection.close()
        self._connection = HTTPConnection("127.0.0.1", self.port, timeout=120)

    def _call(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
        self._connection.request(method, path, body, headers or self.headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"{method} {path}: {response.status} {answer[:300]!r}")
        return answer

    def close(self) -> None:
        self._connection.close()
        self._open.close()


def grouped(agents: Iterable[Registration], size: int) -> Iterator[tuple[Registration, ...]]:
    left = iter(agents)
    while group := tuple(islice(left, size)):
        yield group

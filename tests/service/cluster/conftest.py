"""One PostgreSQL for the tests of this folder, and clusters of nodes over databases of their own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.postgresql import PostgresqlServer, running_postgresql
from support.server import RunningServer, start_server, stop_server


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresqlServer]:
    with running_postgresql() as server:
        yield server


class Cluster:
    """Nodes over one database. The first one makes the cluster key, which the others get a copy of."""

    def __init__(self, folder: Path, url: str, stack: ExitStack) -> None:
        self.folder = folder
        self.url = url
        self.stack = stack
        self.nodes: list[RunningServer] = []

    def start(
        self, *flags: str, name: str | None = None, before: Sequence[str] = (), package: Path | None = None
    ) -> RunningServer:
        """`before` is a command prefix, as for a network namespace. `package`: that of another release, which runs in a process
        of its own, because others are forked from one that has imported this release."""
        folder = self.folder / (name or f"node-{len(self.nodes)}")
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.nodes and not (data / "cluster.key").exists():
            shutil.copy(self.nodes[0].data / "cluster.key", data)
        environment = None if package is None else {"PYTHONPATH": str(package)}
        before = before if package is None else ("env", *before)
        node = start_server(
            "--store", self.url, *flags, folder=folder, data=data, environment=environment, before=before
        )
        self.stack.callback(stop_server, node)
        self.nodes.append(node)
        return node


@pytest.fixture
def cluster(tmp_path: Path, postgresql: PostgresqlServer) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, postgresql.create_database(), stack)


@pytest.fixture
def start_nodes(cluster: Cluster) -> Callable[[int], list[RunningServer]]:
    return lambda count: [cluster.start() for _ in range(count)]

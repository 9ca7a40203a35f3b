"""Processes of the command, forked from one that has imported everything (`support.fork_server`); the interface is `Popen`'s."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

_WAITING = 64  # that may ask for a copy at once
_PATIENCE_SECONDS = 120.0


class Process:
    """The part of `subprocess.Popen` that tests use. The parent is the fork server, which reports the exit."""

    def __init__(self, asked: socket.socket, arguments: Sequence[str], stdout: IO[str] | None = None) -> None:
        self.args = list(arguments)
        self.stdout = stdout
        self.returncode: int | None = None
        self._asked = asked
        asked.settimeout(_PATIENCE_SECONDS)
        self.pid = int(asked.recv(64))

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._asked.settimeout(timeout)
            try:
                told = self._asked.recv(64)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._asked.close()
            assert told, "the process that makes copies is gone"
            self.returncode = int(told)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Like `Popen`: a process that has just ended is no error."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class _Copier:
    """One per process of the test run. It exits when its stdin is closed, that is, with that process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="waypost-warm-")
        self.address = str(Path(self._folder.name) / "socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.address)
            listener.listen(_WAITING)
            number = listener.fileno()
            script = str(Path(__file__).with_name("fork_server.py"))
            command = [sys.executable, "-P", script, str(number)]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(number,))


@functools.cache
def _copier() -> _Copier:
    return _Copier()


def start(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], files: tuple[int, int, int]
) -> Process:
    """Start `waypost ARGUMENTS…` with these files as stdin, stdout and stderr."""
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked.connect(_copier().address)
    wanted = {"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)}
    socket.send_fds(asked, [json.dumps(wanted).encode()], list(files))
    return Process(asked, ["waypost", *arguments])


def run(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: bytes, timeout: float
) -> tuple[int, bytes, bytes]:
    """Run a command; return its exit code and output."""
    inside, outside = zip(*(os.pipe(), os.pipe()[::-1], os.pipe()[::-1]), strict=True)
    process = start(arguments, folder, environment, inside)
    for file in inside:
        os.close(file)
    with ThreadPoolExecutor(3) as pool:
        given = pool.submit(_write, outside[0], stdin)
        out, err = pool.submit(_read, outside[1]), pool.submit(_read, outside[2])
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        given.result()
        return code, out.result(), err.result()


def _write(file: int, content: bytes) -> None:
    with open(file, "wb", buffering=0) as pipe:
        try:
            pipe.write(content)
        except BrokenPipeError:
            return  # it reads no more than it wants


def _read(file: int) -> bytes:
    with open(file, "rb") as pipe:
        return pipe.read()

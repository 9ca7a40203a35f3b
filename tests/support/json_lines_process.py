"""A process that prints JSON lines."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

STOP_SECONDS = 60.0


class Reading:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._rest = b""
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)

    def next(self, seconds: float = STOP_SECONDS) -> Any:
        """The next line, or None after the timeout or the end of the process."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            if not self._read(max(0.0, deadline - time.monotonic())):
                return None
        line, _, self._rest = self._rest.partition(b"\n")
        return msgspec.json.decode(line)

    def new(self) -> list[Any]:
        """All complete lines since the last call."""
        while self._read(0.0):
            pass
        lines, _, self._rest = self._rest.rpartition(b"\n")
        return [msgspec.json.decode(line) for line in lines.splitlines()]

    def _read(self, seconds: float) -> bool:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                return False
        data = os.read(self.process.stdout.fileno(), 65536)
        self._rest += data
        return bool(data)


@contextmanager
def reading(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Reading]:
    """The process, interrupted by SIGINT at the end."""
    with (folder / "stderr.log").open("ab") as log:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, cwd=folder, env=dict(environment))
    try:
        yield Reading(process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(STOP_SECONDS)
        assert process.stdout is not None
        process.stdout.close()

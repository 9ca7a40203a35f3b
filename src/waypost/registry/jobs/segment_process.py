"""Builds search segments in a process of its own: during a bulk load, analysing texts takes more time than storing them, and in
the process of the service it would hold the interpreter lock that requests need.

    service → length, msgpack list of registrations → process → length, msgpack list of segments → service

The process starts with the first bulk load and ends when it has nothing to do, or when its input ends, so it never outlives the
service. Without it (one processor, or it cannot be started) the service builds the segments itself.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock, Timer
from typing import IO, Final

import msgspec
import numpy as np

from waypost.model.principal import VISIBILITIES
from waypost.model.registration import Registration
from waypost.search.index.document import prepare_documents
from waypost.search.index.segment import Segment, build_segment
from waypost.search.index.write_buffer import BufferedChange

log = logging.getLogger("waypost.registry")

_MODULE: Final = "waypost.registry.jobs.segment_process"
_LENGTH_BYTES: Final = 8
_IDLE_SECONDS: Final = 10.0
_BUILD_SECONDS: Final = 120.0  # a thousand agents take less than a second; a process that hangs is killed

_Array = tuple[str, tuple[int, ...], bytes]  # dtype, shape, content
_encode = msgspec.msgpack.Encoder().encode
_registrations_decoder = msgspec.msgpack.Decoder(list[Registration])
_segments_decoder = msgspec.msgpack.Decoder(list[dict[str, _Array]])


class SegmentProcess:
    """Thread-safe. The process runs from the first `build` until it was idle for some seconds."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()
        self._idle: Timer | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def build(self, changes: Sequence[BufferedChange]) -> list[Segment] | None:
        """One segment for each visibility; None if the process failed, and the caller has to build them."""
        request = _encode([msgspec.Raw(change.data) for change in changes])
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            try:
                answer = self._exchange(request)
            except (OSError, EOFError, ValueError) as error:
                log.warning("the process that builds search segments failed: %s", error)
                self._end()
                return None
            self._idle = Timer(_IDLE_SECONDS, self.close)
            self._idle.daemon = True
            self._idle.start()
        return [_read_segment(arrays) for arrays in _segments_decoder.decode(answer)]

    def close(self) -> None:
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            self._end()

    def _exchange(self, request: bytes) -> bytes:
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = _start()
        if process.stdin is None or process.stdout is None:
            raise ValueError("it has no pipes")
        overdue = Timer(_BUILD_SECONDS, process.kill)
        overdue.daemon = True
        overdue.start()
        try:
            _write_message(process.stdin, request)
            return _read_message(process.stdout)
        finally:
            overdue.cancel()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            process.kill()
            process.wait()


def _start() -> subprocess.Popen[bytes]:
    # In a session of its own: Ctrl-C in a terminal ends the service, which ends the process.
    return subprocess.Popen(  # noqa: S603 - this module, run by this interpreter
        [sys.executable, "-m", _MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )


def _write_message(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(_LENGTH_BYTES, "little"))
    pipe.write(message)
    pipe.flush()


def _read_message(pipe: IO[bytes]) -> bytes:
    """Raises EOFError at the end."""
    head = pipe.read(_LENGTH_BYTES)
    message = pipe.read(int.from_bytes(head, "little"))
    if len(head) < _LENGTH_BYTES or len(message) < int.from_bytes(head, "little"):
        raise EOFError("it ended")
    return message


def _read_segment(arrays: dict[str, _Array]) -> Segment:
    return Segment(
        {name: np.frombuffer(data, dtype=dtype).reshape(shape) for name, (dtype, shape, data) in arrays.items()}
    )


def _dump_segment(segment: Segment) -> dict[str, _Array]:
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in segment.arrays.items()}


def _build(registrations: Sequence[Registration]) -> list[Segment]:
    prepared = prepare_documents(registrations, with_texts=False)
    tiers = ([each for each in prepared if each.tier == tier] for tier in range(len(VISIBILITIES)))
    return [build_segment(documents) for documents in tiers if documents]


def main() -> None:
    with suppress(EOFError, BrokenPipeError):
        while True:
            registrations = _registrations_decoder.decode(_read_message(sys.stdin.buffer))
            _write_message(sys.stdout.buffer, _encode([_dump_segment(each) for each in _build(registrations)]))


if __name__ == "__main__":
    main()

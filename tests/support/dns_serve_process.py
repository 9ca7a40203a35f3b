"""`waypost dns serve` as a process, for queries from outside."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from support.command_process import start
from support.real_dns_servers import NameServer
from support.server import STOP_SECONDS, clean_environment


@contextmanager
def served_zone(
    data: Path,
    text: str = "",
    algorithm: str = "ed25519",
    zone: str = "example.test",
    *more: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[NameServer, list[str]]]:
    """The server and its trust anchors, once it printed its ready line."""
    arguments = [
        "dns",
        "serve",
        zone,
        "--port",
        "0",
        "--algorithm",
        algorithm,
        "--data",
        str(data),
        "-o",
        "jsonl",
        *more,
    ]
    if text:
        (data / "records.zone").write_text(text)
        arguments += ["--file", str(data / "records.zone")]
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as log, open(os.devnull, "rb") as nothing:
        process = start(arguments, data, environment or clean_environment(), (nothing.fileno(), writing, log.fileno()))
        os.close(writing)
        with open(reading, "rb") as told:
            try:
                line = told.readline()
                assert line, _read(log.fileno())
                ready = msgspec.json.decode(line)
                port = int(ready["address"].rpartition(":")[2])
                yield NameServer(port, data), Path(ready["trust_anchors"]).read_text().splitlines()
            finally:
                process.terminate()
                process.wait(STOP_SECONDS)


def _read(file: int) -> str:
    return os.pread(file, 4000, 0).decode("utf-8", "replace")

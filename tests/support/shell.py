"""The command `waypost`, run as in a shell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from support.command_process import run

PATIENCE_SECONDS = 120.0


@dataclass
class Ran:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    @property
    def lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


class Shell:
    """Runs `waypost …` as a separate process in its own folder, with pipes."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def __call__(self, *arguments: str, stdin: bytes = b"", **environment: str) -> Ran:
        code, out, err = run(arguments, self.folder, {**self.environment, **environment}, stdin, PATIENCE_SECONDS)
        return Ran(code, out.decode(), err.decode())

    def write(self, name: str, value: Any) -> str:
        """Write a file in the folder: bytes, or a value as JSON."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value if isinstance(value, bytes) else msgspec.json.encode(value))
        return name

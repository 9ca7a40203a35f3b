"""Documents to import: from files, folders and standard input to single documents, each with its origin.

Knows how documents are packed (one to a file, one to a line, in an array, in a catalogue); not what they say.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from waypost import limits
from waypost.dialects.packing import unpack
from waypost.errors import InvalidParameter, InvalidRequest, MalformedJson, TooLarge, WaypostError
from waypost.model.sexpr_start import is_sexpr_text

SUFFIXES = (".json", ".jsonl", ".ndjson", ".rtfs")


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One document, or the reason why there is none."""

    origin: str  # the file, and the line or the place in it
    content: bytes = b""
    error: WaypostError | None = None

    @property
    def goes_in_batch(self) -> bool:
        """A JSON document can stand on one line; an S-expression may hold comments, which end with their line."""
        return self.error is None and not is_sexpr_text(self.content)


def read_sources(names: Iterable[str]) -> Iterator[Piece]:
    """Every document in these files and folders, in order."""
    for name in names:
        if name == "-":
            yield from _unpack("stdin", sys.stdin.buffer.read(limits.BATCH_BYTES + 1), "")
            continue
        path = Path(name)
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
            if not files:
                raise InvalidParameter(
                    f"There is nothing to import in {path}.", path="FOLDER", hint=f"It reads {', '.join(SUFFIXES)}."
                )
        else:
            files = [path]
        for file in files:
            yield from _unpack(str(file), _read(file), file.suffix)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limits.BATCH_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.", path=str(path)) from None


def _unpack(origin: str, content: bytes, suffix: str) -> Iterator[Piece]:
    if len(content) > limits.BATCH_BYTES:
        error = TooLarge(f"More than {limits.BATCH_BYTES} bytes.", hint="Split the file.")
        yield Piece(origin=origin, error=error)
    elif not content.strip() and not suffix:
        return  # the export of an empty registry, through a pipe
    elif suffix == ".rtfs" or is_sexpr_text(content):
        yield _checked(origin, content)
    elif suffix in (".jsonl", ".ndjson"):
        yield from _lines(origin, content)
    else:
        yield from _json(origin, content)


def _lines(origin: str, content: bytes) -> Iterator[Piece]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            yield _checked(f"{origin}:{number}", line.strip())


def _json(origin: str, content: bytes) -> Iterator[Piece]:
    """One document, an array or a catalogue of them, or, where that cannot be read, lines."""
    try:
        packed = unpack(content)
    except msgspec.DecodeError as error:
        lines = [line for line in content.split(b"\n") if line.strip()]
        if len(lines) > 1 and all(line.lstrip().startswith(b"{") for line in lines):
            yield from _lines(origin, content)
        else:
            yield Piece(origin=origin, error=MalformedJson(f"Not JSON: {error}."))
        return
    if packed is None:
        yield _checked(origin, content)
        return
    for index, item in enumerate(packed):
        yield _checked(f"{origin}[{index}]", item)


def _checked(origin: str, content: bytes) -> Piece:
    if len(content) > limits.DOCUMENT_BYTES:
        most = limits.DOCUMENT_BYTES
        return Piece(origin=origin, error=TooLarge(f"The document has {len(content)} bytes; at most {most} are taken."))
    return Piece(origin=origin, content=content)

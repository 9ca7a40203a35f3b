"""Batches: JSON lines in, one answer for each. A bad line is an answer of its own; it stops no other."""

from __future__ import annotations

from collections.abc import AsyncIterator

from waypost import limits
from waypost.errors import TooLarge, WaypostError
from waypost.model.json import JsonObject
from waypost.registry.publication import Receipt


def line_answer(result: Receipt | WaypostError) -> JsonObject:
    if isinstance(result, Receipt):
        return {"id": result.id, "outcome": result.outcome, "etag": result.etag}
    error: JsonObject = {"code": result.code, "message": result.message}
    if result.path is not None:
        error["path"] = result.path
    if result.hint is not None:
        error["hint"] = result.hint
    return {"error": error}


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes | WaypostError]:
    """Lines of a stream. A line that is too long is passed over as an error of its own, not of the batch."""
    rest = b""
    too_long = False
    async for chunk in chunks:
        parts = (rest + chunk).split(b"\n")
        rest = parts.pop()
        for part in parts:
            line = _finish_line(part, too_long)
            too_long = False
            if line is not None:
                yield line
        if len(rest) > limits.DOCUMENT_BYTES + 1:  # a carriage return is not of the line
            rest, too_long = b"", True
    line = _finish_line(rest, too_long)
    if line is not None:
        yield line


def _finish_line(line: bytes, too_long: bool) -> bytes | WaypostError | None:
    if too_long or len(line) > limits.DOCUMENT_BYTES + 1:
        return TooLarge(
            f"The line has more than {limits.DOCUMENT_BYTES} bytes.", path="$", hint="Send a smaller document."
        )
    stripped = line.strip()
    return stripped or None

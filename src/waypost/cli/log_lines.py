"""What the service writes to stderr: one line for each thing that is told, for people or, as JSON, for programs.

Whatever a caller said is data in it: no text begins a line of its own, and in JSON every part stands in its member.
"""

from __future__ import annotations

import logging
from typing import Final

from waypost.model.json import JsonObject, dump_json
from waypost.model.times import to_rfc3339_millis

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x09} | {
    0x0A: "\\n",
    0x0D: "\\r",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


class TextLines(logging.Formatter):
    """For people. A traceback, which is ours alone, keeps its lines."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        record.message = record.message.translate(_ESCAPES)
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """For programs: one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        told: JsonObject = {
            "at": to_rfc3339_millis(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return dump_json(told).decode()


def make_handler(log_format: str) -> logging.Handler:
    """Writes to stderr in the format of the settings."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    return handler

"""One log line per event, for any caller input (H15)."""

from __future__ import annotations

import json
import logging
import sys

from support.server import running_server
from waypost.cli.commands.service.serve import JsonFormatter, TextFormatter

FORGED = "x\nINFO forged\r\x1b[31m\u2028INFO\x00\x85 forged"


def record(message: str, *args: object, broken: bool = False) -> logging.LogRecord:
    failure = None
    if broken:
        try:
            raise ValueError("two\nlines")
        except ValueError:
            failure = sys.exc_info()
    made = logging.LogRecord("waypost.test", logging.WARNING, "here.py", 1, message, args, failure)
    made.created = 1_780_000_000.25
    return made


def test_a_line_of_text_is_one_line_without_controls() -> None:
    line = TextFormatter().format(record("agent %s came", FORGED))
    assert len(line.splitlines()) == 1
    assert all(character.isprintable() for character in line)
    assert line.endswith(r"WARNING waypost.test: agent x\nINFO forged\r\x1b[31m\u2028INFO\x00\x85 forged came")


def test_a_line_of_json_has_every_part_in_its_member() -> None:
    line = JsonFormatter().format(record("agent %s came", FORGED))
    assert "\n" not in line
    told = json.loads(line)
    assert told.pop("process") is not None
    assert told == {
        "at": "2026-05-28T20:26:40.250Z", "level": "warning", "logger": "waypost.test", "message": f"agent {FORGED} came"
    }  # fmt: skip


def test_a_traceback_is_a_member_too() -> None:
    told = json.loads(JsonFormatter().format(record("it broke", broken=True)))
    assert told["message"] == "it broke"
    assert "ValueError: two" in told["traceback"]
    assert "Traceback" in TextFormatter().format(record("it broke", broken=True))


def test_a_service_logs_json_if_configured() -> None:
    with running_server("--log-format", "json", "--open") as server:
        lines = server.log.read_text().splitlines()
    told = [json.loads(line) for line in lines]
    assert any("authentication is off" in each["message"] for each in told)

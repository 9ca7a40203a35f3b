"""How an agent's endpoint answers, for people."""

from __future__ import annotations

import msgspec

from waypost.cli.output import Printer
from waypost.cli.text import clean
from waypost.client.results import AgentHealth


def show_health(printer: Printer, health: AgentHealth) -> None:
    told = msgspec.to_builtins(health)
    if not printer.is_human:
        printer.value(told)
        return
    printer.rows((name, clean(str(value))) for name, value in told.items())
    if health.state == "unknown":
        printer.note("Its endpoint was not checked: `serve --health-checks` turns checks on.")

"""Versions of an agent, and how two of them differ, for people."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.table import Column
from rich.text import Text

from waypost.cli.output import Printer
from waypost.cli.text import clean, short
from waypost.client.history import Comparison, History, HistoryVersion
from waypost.model.difference import Difference
from waypost.model.json import dump_json

_VALUE_CHARS = 200


def show_history(printer: Printer, history: History) -> None:
    if not printer.is_human:
        printer.value(history.document)
        return
    rows = [_cells(version) for version in history.versions]
    if not printer.is_terminal:
        printer.rows(rows)
        return
    columns = [
        Column("ETAG", style="cyan", no_wrap=True),
        Column("SINCE", no_wrap=True),
        Column("BY"),
        Column("CHANGED", overflow="fold"),
    ]
    printer.table(columns, [tuple(map(Text, row)) for row in rows])


def _cells(version: HistoryVersion) -> tuple[str, str, str, str]:
    changed = "" if version.changed is None else ", ".join(version.changed) or "(envelope only)"
    return version.etag, version.at, clean(version.subject or ""), clean(changed)


def show_comparison(printer: Printer, comparison: Comparison) -> None:
    if not printer.is_human:
        printer.value(comparison.document)
        return
    printer.note(f"{comparison.from_} → {comparison.to}")
    for difference in comparison.differences:
        _show_difference(printer, difference)
    if not comparison.differences:
        printer.note("The records are equal; visibility, invitees or names may differ.")
    if not comparison.complete:
        printer.note("There are more differences than are shown.", style="yellow")


def _show_difference(printer: Printer, difference: Difference) -> None:
    printer.line(Text(clean(difference.path), style="bold"))
    for sign, value, style in (("-", difference.before, "red"), ("+", difference.after, "green")):
        if value is not msgspec.UNSET:
            printer.line(Text(f"  {sign} {_shown(value)}", style=style))


def _shown(value: Any) -> str:
    return short(value if isinstance(value, str) else dump_json(value).decode(), _VALUE_CHARS)

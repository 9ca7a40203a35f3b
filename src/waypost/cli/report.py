"""How an error looks to a person: what, where, what to do. On stderr."""

from __future__ import annotations

import os

import click

from waypost.cli.text import clean
from waypost.errors import WaypostError, codes_of


def report_error(error: WaypostError, subject: str | None = None) -> None:
    """`subject` is the file or the id that the error is about, where there are several."""
    named = f"{clean(subject)}: " if subject else ""
    _say(_styled("error: ", fg="red", bold=True) + named + clean(error.message))
    for label, text in _particulars(error):
        _say(_styled(f"  {label}: ", dim=True) + clean(text))


def _particulars(error: WaypostError) -> list[tuple[str, str]]:
    lines = []
    if error.path:
        lines.append(("where", error.path))
    if error.hint:
        lines.append(("hint", error.hint))
    if error.retry_after is not None:
        lines.append(("retry after", f"{error.retry_after} s"))
    correlation = error.details.get("correlation_id")
    if correlation and codes_of(error).http >= 500:
        lines.append(("correlation id", str(correlation)))
    return lines


def _styled(text: str, **style: object) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)  # type: ignore[arg-type]


def _say(line: str) -> None:
    click.echo(line, err=True)  # takes the colours out where stderr is no terminal

"""Output of commands: data on stdout, all else on stderr; tables and colours on a terminal only.

Much of the data was written by strangers, so control characters never reach the terminal.
"""

from __future__ import annotations

import contextlib
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from waypost.errors import InvalidParameter, WaypostError, error_codes
from waypost.model.json import dump_json, to_single_line

_UNPRINTABLE = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))

_JOINERS = "\u200c\u200d"  # part of some scripts and of composed emoji


def sanitize(text: Any) -> str:
    """Return one line without control characters and bidirectional overrides."""
    line = " ".join(str(text).split())
    if line.isascii() and line.isprintable():
        return line
    return "".join(
        "�" if unicodedata.category(char) in _UNPRINTABLE and char not in _JOINERS else char for char in line
    )


def sanitize_lines(text: str) -> str:
    """The same, keeping line breaks and spaces."""
    return "".join(
        "�" if unicodedata.category(char) in _UNPRINTABLE and char not in _JOINERS and char not in "\n\t" else char
        for char in text.replace("\r\n", "\n")
    )


def truncate(text: Any, most: int) -> str:
    """`sanitize`, truncated to `most` characters."""
    line = sanitize(text)
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def join_alternatives(names: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def count_noun(count: int, noun: str) -> str:
    """`1 agent`, `2 agents`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


_INDENT = 2


class Printer:
    """Prints the data of one command in one format."""

    def __init__(self, output: str) -> None:
        self.output = output
        self.console = Console(highlight=False, markup=False, emoji=False)
        self.notes = Console(stderr=True, highlight=False, markup=False, emoji=False)

    @property
    def is_human(self) -> bool:
        return self.output == "human"

    @property
    def is_terminal(self) -> bool:
        """Whether stdout is a terminal with human output."""
        return self.is_human and self.console.is_terminal

    def value(self, value: Any) -> None:
        """One JSON value."""
        content = dump_json(value)
        self.raw(to_single_line(content) if self.output == "jsonl" else msgspec.json.format(content, indent=_INDENT))

    def values(self, values: Iterable[Any]) -> None:
        """Several JSON values: as lines, or as one array."""
        if self.output == "json":
            self.value(list(values))
            return
        for value in values:
            self.raw(to_single_line(dump_json(value)))

    def parts(self, document: Any, items: Iterable[Any]) -> None:
        """A document as JSON; with jsonl, its items as lines."""
        if self.output == "json":
            self.value(document)
        else:
            self.values(items)

    def raw(self, content: bytes) -> None:
        """Bytes unchanged, as one or more complete lines, flushed."""
        sys.stdout.flush()
        sys.stdout.buffer.write(content if content.endswith(b"\n") else content + b"\n")
        sys.stdout.buffer.flush()

    def line(self, text: Text | str) -> None:
        """A line for people; in a pipe without colours, wrapping or truncation."""
        if self.console.is_terminal:
            self.console.print(text, soft_wrap=True)
        else:
            click.echo(str(text))

    def rows(self, rows: Iterable[Sequence[str]]) -> None:
        """Tab-separated columns, for other programs."""
        for row in rows:
            self.line("\t".join(row))

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Text]]) -> None:
        """A table on a terminal."""
        table = Table(*columns, box=None, pad_edge=False, header_style="bold dim", padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(*row)
        self.console.print(table)

    def note(self, text: str, style: str = "dim") -> None:
        """A message on stderr."""
        self.notes.print(Text(sanitize(text), style=style), soft_wrap=True)


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


_error_format: ContextVar[str] = ContextVar("error_format", default="human")


@contextlib.contextmanager
def error_format(output: str) -> Iterator[None]:
    """Print errors in this format: text, or one line of JSON."""
    before = _error_format.set(output)
    try:
        yield
    finally:
        _error_format.reset(before)


def report_error(error: WaypostError, subject: str | None = None) -> None:
    """Print an error on stderr: what, where, what to do. `subject` names the file or id, if there are several."""
    if subject is not None and subject in error.message:
        subject = None
    if _error_format.get() != "human":
        message = f"{subject}: {error.message}" if subject else error.message
        _echo_json(code=error.code, message=message, path=error.path, hint=error.hint)
        return
    named = f"{sanitize(subject)}: " if subject else ""
    _echo(_styled("error: ", fg="red", bold=True) + named + sanitize(error.message))
    for label, text in _error_details(error):
        _echo(_styled(f"  {label}: ", dim=True) + sanitize(text))


def _error_details(error: WaypostError) -> list[tuple[str, str]]:
    lines = []
    if error.path:
        lines.append(("where", error.path))
    if error.hint:
        lines.append(("hint", error.hint))
    if error.retry_after is not None:
        lines.append(("retry after", f"{error.retry_after} s"))
    correlation = error.details.get("correlation_id")
    if correlation and error_codes(error).http >= 500:
        lines.append(("correlation id", str(correlation)))
    return lines


def report_usage_error(error: click.ClickException) -> None:
    """Print an error of the command line: with its usage, or as one line of JSON."""
    if _error_format.get() == "human":
        error.show()
        return
    parameter = getattr(error, "param", None)
    hint = (
        f"`{error.ctx.command_path} --help` shows the usage."
        if isinstance(error, click.UsageError) and error.ctx
        else None
    )
    path = None if parameter is None else parameter.opts[-1]
    _echo_json(code=InvalidParameter.code, message=error.format_message(), path=path, hint=hint)


def _echo_json(**members: str | None) -> None:
    _echo(to_single_line(dump_json({"error": members})).decode())


def _styled(text: str, **style: object) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)  # type: ignore[arg-type]


def _echo(line: str) -> None:
    click.echo(line, err=True)  # click removes colours if stderr is not a terminal

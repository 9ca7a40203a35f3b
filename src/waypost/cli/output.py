"""Printing: data on stdout, all else on stderr; tables and colours on a terminal only.

What is printed was often written by strangers, so control characters never reach a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from waypost.cli.text import clean
from waypost.model.json import dump_json
from waypost.model.json_lines import one_line

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
        """True when a person looks at stdout."""
        return self.is_human and self.console.is_terminal

    def value(self, value: Any) -> None:
        """One JSON value."""
        content = dump_json(value)
        self.raw(one_line(content) if self.output == "jsonl" else msgspec.json.format(content, indent=_INDENT))

    def values(self, values: Iterable[Any]) -> None:
        """Many JSON values: lines, or one array."""
        if self.output == "json":
            self.value(list(values))
            return
        for value in values:
            self.raw(one_line(dump_json(value)))

    def parts(self, whole: Any, lines: Iterable[Any]) -> None:
        """One JSON value, or as lines what it lists."""
        if self.output == "json":
            self.value(whole)
        else:
            self.values(lines)

    def raw(self, content: bytes) -> None:
        """Bytes as they are, as one or more whole lines, at once."""
        sys.stdout.flush()
        sys.stdout.buffer.write(content if content.endswith(b"\n") else content + b"\n")
        sys.stdout.buffer.flush()

    def line(self, text: Text | str) -> None:
        """A line for people; in a pipe it is neither coloured, broken nor cut."""
        if self.console.is_terminal:
            self.console.print(text, soft_wrap=True)
        else:
            click.echo(str(text))

    def rows(self, rows: Iterable[Sequence[str]]) -> None:
        """Columns between tabs, for other programs."""
        for row in rows:
            self.line("\t".join(row))

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Text]]) -> None:
        """A table on a terminal."""
        table = Table(*columns, box=None, pad_edge=False, header_style="bold dim", padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(*row)
        self.console.print(table)

    def note(self, text: str, style: str = "dim") -> None:
        """A remark that is not data."""
        self.notes.print(Text(clean(text), style=style), soft_wrap=True)


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}

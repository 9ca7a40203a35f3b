"""Progress of long work: on a terminal only, on stderr, never in the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from waypost.cli.output import Printer

Item = TypeVar("Item")


def counted(
    printer: Printer, label: str, items: Iterable[Item], *, total: int | None = None, visible: bool = True
) -> Iterator[Item]:
    """The items, counted before the reader's eyes as they pass."""
    if not (visible and printer.notes.is_terminal):
        yield from items
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=printer.notes, transient=True) as progress:
        task = progress.add_task(label, total=total)
        for item in items:
            progress.advance(task)
            yield item

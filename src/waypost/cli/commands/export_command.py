"""`waypost export`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from waypost.cli.options import example
from waypost.cli.progress import counted
from waypost.cli.session import Session, with_session
from waypost.errors import InvalidParameter


@click.command(
    epilog=example(
        "waypost export > agents.jsonl",
        "waypost export --as a2a --to cards.jsonl",
        "waypost export --as source | waypost import - --server https://other.example",
    )
)
@click.option("--as", "as_", default="profile", show_default=True, metavar="DIALECT", help="Or `source`: as received.")
@click.option(
    "--to", "target", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Instead of stdout."
)
@with_session
def command(session: Session, as_: str, target: Path | None) -> None:
    """Write every agent that you may see, one JSON document on each line (with -o json: one array).

    An agent that has no document of the dialect is left out, and counted on stderr. Who may see an agent stands in no document:
    whoever imports them says so, with --visibility.
    """
    printer = session.printer()
    with session.client() as client, _target(target) as file:
        lines = counted(printer, "Exporting", client.export_lines(as_), visible=not file.isatty())
        written = _write(file, lines, array=printer.output == "json")
        stats = client.stats()
        left_out = stats.agents - written if as_ != "source" else 0
        seen_by = stats.document.get("by_visibility", {"public": stats.agents})
        hidden = stats.agents - seen_by.get("public", 0)
    if left_out > 0:
        agents = "1 agent has" if left_out == 1 else f"{left_out} agents have"
        printer.note(f"warning: {agents} no {as_} document; --as source writes what was received", "yellow")
    if hidden > 0:
        agents = "1 agent is" if hidden == 1 else f"{hidden} agents are"
        printer.note(f"warning: {agents} not public, and would be after `import` without --visibility", "yellow")


@contextlib.contextmanager
def _target(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        file = path.open("wb")
    except OSError as error:
        raise InvalidParameter(f"{path} cannot be written: {error.strerror}.", path="--to") from None
    with file:
        yield file


def _write(file: BinaryIO, lines: Iterator[bytes], *, array: bool) -> int:
    """How many were written."""
    written = 0
    for line in lines:
        if array:
            file.write((b",\n" if written else b"[\n") + line)
        else:
            file.write(line + b"\n")
        written += 1
    if array:
        file.write(b"\n]\n" if written else b"[]\n")
    return written

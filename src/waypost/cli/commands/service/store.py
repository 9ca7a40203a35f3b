"""`waypost store copy`: move a service between its SQLite file and PostgreSQL."""

from __future__ import annotations

import asyncio

import click
import msgspec

from waypost.app.store_copy import copy_store
from waypost.cli.options import example
from waypost.cli.output import count_noun
from waypost.cli.session import Session, with_session


@click.group()
def store() -> None:
    """Copy the records of a service to another store."""


@store.command(
    "copy",
    epilog=example(
        "waypost store copy /srv/waypost postgresql://waypost@db.example.net/waypost",
        "waypost store copy postgresql://waypost@db.example.net/waypost /srv/waypost --data /srv/node",
    ),
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@with_session
def copy(session: Session, source: str, target: str) -> None:
    """Copy all records, the audit trail, tasks, messages and the keys of the service.

    FROM and TO are a data folder with SQLite (a path, or `sqlite` for the folder of --data) and a database (postgresql://…).
    TO must be empty. The service of a data folder must not run; nodes of a database may. Revisions stay as they are, so
    cursors of watches remain valid. The copy is read again and compared: the digest at the end is that of both.

    The cluster key is made beside the records (FROM/cluster.key), or read from the data folder of a node (--data) or from
    WAYPOST_CLUSTER_KEY_FILE.
    """
    printer = session.printer()

    def show(table: str, count: int) -> None:
        if printer.is_human and printer.notes.is_terminal:
            printer.notes.print(f"\r{table}: {count}   ", end="")

    summary = asyncio.run(copy_store(session.settings(), source, target, show))
    if not printer.is_human:
        printer.value(msgspec.to_builtins(summary))
        return
    if printer.notes.is_terminal:
        printer.notes.print()
    printer.line(
        f"Copied {count_noun(summary.agents, 'agent')} at revision {summary.revision}, {summary.audit_entries} audit entries, "
        f"{count_noun(summary.items, 'item')}."
    )
    printer.line(f"digest: {summary.digest}")

"""`waypost stats`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from waypost.cli.options import example
from waypost.cli.session import Session, with_session
from waypost.responses.service import Stats


@click.command(epilog=example("waypost stats", "waypost stats -o json | jq .indexing_pending"))
@with_session
def stats(session: Session) -> None:
    """Count the agents that you may see, by status and visibility; for an admin also the state of the service."""
    printer = session.printer()
    with session.client() as client:
        figures = client.stats()
    if printer.is_human:
        printer.rows(_rows(figures))
    else:
        printer.value(figures)


def _rows(figures: Stats) -> Iterator[tuple[str, str]]:
    yield "agents", str(figures.agents)
    yield from ((f"  {status}", str(count)) for status, count in figures.by_status.items())
    yield from ((f"  {visibility}", str(count)) for visibility, count in figures.by_visibility.items())
    if figures.own is not None:
        yield "own agents", _of(figures.own.agents, figures.own.agents_limit)
        yield "own documents", f"{_of(figures.own.stored_bytes, figures.own.stored_bytes_limit)} bytes"
    if figures.revision is not None:
        yield "revision", str(figures.revision)
    if figures.indexing_pending is not None:
        yield "waiting for the index", str(figures.indexing_pending)
    for worker in figures.workers or ():
        state = "ready" if worker.ready else "not ready"
        yield f"process {worker.pid}", f"{worker.role}, {state}, revision {worker.revision}"
    for node in figures.nodes or ():
        state = "alive" if node.alive else f"away since {node.seen_at}"
        own = " (this one)" if node.this else ""
        about = f"{state}, version {node.version}, revision {node.revision}, {node.lag_seconds:.1f} s behind"
        yield f"node {node.name}{own}", about


def _of(count: int, limit: int | None) -> str:
    return str(count) if limit is None else f"{count} of {limit}"

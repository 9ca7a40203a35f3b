"""`waypost import SOURCE…`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import click

from waypost.cli.found import Choice, is_address, take_url
from waypost.cli.options import example
from waypost.cli.output import Printer
from waypost.cli.progress import counted
from waypost.cli.receipts import receipt_value, tell_remarks
from waypost.cli.report import report_error
from waypost.cli.session import Session, with_session
from waypost.cli.sources import Piece, read_sources
from waypost.client.results import Failure, Receipt
from waypost.client.sync.client import SyncClient
from waypost.errors import (
    FetchFailed,
    Forbidden,
    InternalError,
    InvalidRequest,
    Unauthorized,
    Unavailable,
    WaypostError,
)

OUTCOMES = ("created", "updated", "refreshed", "unchanged", "failed")


@click.command(
    epilog=example(
        "waypost import agents.jsonl",
        "waypost import cards/ profile.rtfs ai-catalog.json",
        "waypost import https://agents.example.net/.well-known/ai-catalog.json",
        "waypost import example.com",
        "waypost export --server http://127.0.0.1:8441 | waypost import -",
    )
)
@click.argument("sources", nargs=-1, required=True, metavar="FILE|FOLDER|URL|DOMAIN|-...")
@click.option("--visibility", type=click.Choice(("public", "internal", "private")), help="Who may see them.")
@click.option("--yes", is_flag=True, help="Register what is at an address without a question.")
@click.option("--dry-run", is_flag=True, help="Show what is at addresses, and register nothing.")
@with_session
def command(session: Session, sources: tuple[str, ...], visibility: str | None, yes: bool, dry_run: bool) -> int:
    """Register many agents: JSON documents, JSON lines, RTFS profiles, AI catalogues, and folders of those.

    What is at an address is fetched by the service, and on a terminal shown before it is registered. A domain stands for
    every agent that its organisation lists in the DNS.

    A document that is refused does not stop the others; it is named on stderr, and the exit code is 1.
    """
    printer = session.printer()
    addresses = [source for source in sources if is_address(source)]
    if dry_run and len(addresses) < len(sources):
        raise click.UsageError("--dry-run is for addresses.")
    pieces = list(read_sources(source for source in sources if not is_address(source)))
    choice = Choice(yes=yes, dry_run=dry_run, visibility=visibility, organisation=True)
    with session.client() as client:
        fetched = [*_from_addresses(client, printer, addresses, choice)]
        everything = chain(fetched, _results(client, pieces, visibility))
        results = counted(printer, "Importing", everything, total=len(pieces) + len(fetched))
        told = (_tell(printer, piece, result) for piece, result in results)
        if printer.is_human:
            counts = Counter(value["outcome"] for value in told)
            if counts or not dry_run:
                printer.line(_summary(counts))
            return 1 if counts["failed"] else 0
        values = list(told)
    if values or not dry_run:
        printer.values(values)
    return 1 if any(value["outcome"] == "failed" for value in values) else 0


def _from_addresses(
    client: SyncClient, printer: Printer, addresses: list[str], choice: Choice
) -> Iterator[tuple[Piece, Receipt | Failure]]:
    for url in addresses:
        try:
            found = take_url(client, printer, url, choice)
        except (FetchFailed, InvalidRequest) as error:
            yield Piece(origin=url), Failure(error=error)
            continue
        for number, agent in enumerate(found.agents if found is not None else ()):
            piece = Piece(origin=url if found is None or len(found.agents) == 1 else f"{url}[{number}]")
            if isinstance(agent, Failure):
                yield piece, agent
            elif agent.receipt is not None:
                yield piece, agent.receipt


def _results(
    client: SyncClient, pieces: list[Piece], visibility: str | None
) -> Iterator[tuple[Piece, Receipt | Failure]]:
    """Each piece with what became of it, in order: JSON in batches, texts one by one, what cannot be sent not at all."""
    contents = (piece.content for piece in pieces if piece.goes_in_batch)
    answers = client.register_many(contents, visibility=visibility)
    for piece in pieces:
        if piece.error is not None:
            yield piece, Failure(error=piece.error)
        elif piece.goes_in_batch:
            yield piece, _next(answers)
        else:
            yield piece, _register(client, piece, visibility)


def _next(answers: Iterator[Receipt | Failure]) -> Receipt | Failure:
    answer = next(answers, None)
    if answer is None:
        raise InternalError(
            "The service answered fewer lines than were sent.", hint="Import again; nothing is doubled."
        )
    return answer


def _register(client: SyncClient, piece: Piece, visibility: str | None) -> Receipt | Failure:
    try:
        return client.register(piece.content, visibility=visibility)
    except (Unauthorized, Forbidden, Unavailable):
        raise
    except WaypostError as error:
        return Failure(error=error)


def _tell(printer: Printer, piece: Piece, result: Receipt | Failure) -> dict[str, Any]:
    if isinstance(result, Receipt):
        tell_remarks(printer, result, piece.origin)
        return {"source": piece.origin, **receipt_value(result)}
    report_error(result.error, piece.origin)
    return {"source": piece.origin, "outcome": "failed", "error": _error_value(result.error)}


def _error_value(error: WaypostError) -> dict[str, Any]:
    members = {"code": error.code, "message": error.message, "path": error.path, "hint": error.hint}
    return {name: value for name, value in members.items() if value is not None}


def _summary(counts: Counter[str]) -> str:
    told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
    return f"{counts.total()} read: {told}" if told else "Nothing to import."

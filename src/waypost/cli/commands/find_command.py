"""`waypost find TEXT`."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from waypost.cli.evidence import show_candidate
from waypost.cli.options import example, texts
from waypost.cli.output import Printer
from waypost.cli.session import Session, with_session
from waypost.cli.text import clean
from waypost.client.results import Candidate, Found


@click.command(
    epilog=example(
        'waypost find "translate an invoice"',
        'waypost find "onboard a new employee" --tag hr --protocol https --explain',
        'waypost find "weather in Paris" -o json | jq -r ".candidates[0].id"',
    )
)
@click.argument("text")
@click.option("-t", "--tag", "tags", multiple=True, metavar="TAG", help="Must have this tag; repeat for more.")
@click.option("--prefer", multiple=True, metavar="TAG", help="Better with this tag.")
@click.option("--exclude", multiple=True, metavar="TAG", help="Not with this tag.")
@click.option("-p", "--protocol", "protocols", multiple=True, metavar="NAME", help="Must speak one of these protocols.")
@click.option("-c", "--constraint", "constraints", multiple=True, metavar="NAME=VALUE", help="E.g. region=apac.")
@click.option("-n", "--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="At most so many.")
@click.option("--detail", type=click.Choice(("minimal", "summary", "full")), default="summary", show_default=True)
@click.option("--explain", is_flag=True, help="Show why each was chosen.")
@with_session
def command(session: Session, text: str, constraints: tuple[str, ...], **how: Any) -> None:
    """Find agents for a task, best first."""
    printer = session.printer()
    with session.client() as client:
        found = client.find(
            text,
            tags=texts(how["tags"]),
            preferred_tags=texts(how["prefer"]),
            excluded_tags=texts(how["exclude"]),
            protocols=texts(how["protocols"]),
            constraints=dict(map(_constraint, constraints)),
            limit=how["limit"],
            detail=how["detail"],
            explain=how["explain"],
        )
    _show(printer, found, explain=how["explain"])
    for name in found.unsupported_filters:
        printer.note(f"warning: the filter {name!r} could not be applied", style="yellow")
    for warning in found.warnings:
        printer.note(f"warning: {warning}", style="yellow")


def _constraint(text: str) -> tuple[str, Any]:
    """NAME=VALUE, where the value is JSON if it can be read as JSON, else a text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{text!r} is not NAME=VALUE.")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value


def _show(printer: Printer, found: Found, *, explain: bool) -> None:
    if printer.output == "json":
        printer.value(found.document)
    elif printer.output == "jsonl":
        printer.values(candidate.document for candidate in found.candidates)
    elif not found.candidates:
        printer.note("Nothing fits. Use other words, or fewer --tag and --protocol.")
    elif printer.is_terminal or explain:
        for place, candidate in enumerate(found.candidates, 1):
            show_candidate(printer, place, candidate, explain=explain)
    else:
        printer.rows(_cells(candidate) for candidate in found.candidates)


def _cells(candidate: Candidate) -> tuple[str, ...]:
    score = f"{candidate.score or 0.0:.3f}"
    return score, clean(candidate.name), clean(candidate.id), clean(candidate.description)

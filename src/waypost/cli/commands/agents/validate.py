"""`waypost validate FILE|URL|-…`: what a document is, and everything that is wrong with it. Nothing is sent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click
import msgspec
from rich.text import Text

from waypost.cli.commands.agents.bulk import read_sources
from waypost.cli.completion import complete_dialect
from waypost.cli.local_fetch import fetch_locally, find_loopback_url
from waypost.cli.options import example
from waypost.cli.output import Printer, count_noun, sanitize
from waypost.cli.session import Session, with_session
from waypost.errors import WaypostError
from waypost.protocols.codec import DecodeContext
from waypost.protocols.validation import DocumentProblem, ValidationReport, validate_document

EXIT_INVALID = 1


@click.command(
    epilog=example(
        "waypost validate agent-card.json",
        "waypost validate cards/ -o json",
        "waypost validate http://localhost:9999",
        "generate-card | waypost validate -",
    )
)
@click.argument("sources", nargs=-1, required=True, metavar="FILE|FOLDER|URL|-...")
@click.option(
    "--dialect",
    metavar="NAME",
    shell_complete=complete_dialect,
    help="The dialect, if it should not be recognised from the content.",
)
@with_session
def validate(session: Session, sources: tuple[str, ...], dialect: str | None) -> int:
    """Check documents by the rules of the registry: say what each one is, and list every problem with its JSON path.

    Nothing is sent to a service; a document at a URL is fetched from this machine. Signatures, ownership and the addresses of
    endpoints are not checked, because only the service knows its keys and its policy.

    The exit code is 0 if all documents are valid, else 1.
    """
    printer = session.printer()
    reports = [(origin, _validate(content, dialect, url)) for origin, content, url in _read(session, sources, dialect)]
    if printer.is_human:
        for origin, report in reports:
            _show(printer, origin, report)
    elif len(reports) == 1:
        printer.value(_value(*reports[0]))
    else:
        printer.values(_value(origin, report) for origin, report in reports)
    return 0 if all(report.valid for _, report in reports) else EXIT_INVALID


def _read(
    session: Session, sources: tuple[str, ...], dialect: str | None
) -> Iterator[tuple[str, bytes | WaypostError, str | None]]:
    """Each document, or the error of reading it, with its origin and its URL."""
    for source in sources:
        url = find_loopback_url(source) or (source if "://" in source else None)
        if url is None:
            documents = [(item.origin, item.error or item.content, None) for item in read_sources((source,))]
            yield from documents or [("stdin", b"", None)]
            continue
        found_at, fetched = fetch_locally(url, session.settings(), dialect)
        for number, document in enumerate(fetched):
            yield found_at if len(fetched) == 1 else f"{found_at}[{number}]", document, found_at


def _validate(content: bytes | WaypostError, dialect: str | None, url: str | None) -> ValidationReport:
    if isinstance(content, WaypostError):
        problem = DocumentProblem(path=content.path or "$", message=content.message, hint=content.hint)
        return ValidationReport(valid=False, problems=(problem,))
    return validate_document(content, dialect, DecodeContext(now=time.time(), source_url=url))


def _value(origin: str, report: ValidationReport) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(report)
    return {"source": origin, **value}


def _show(printer: Printer, origin: str, report: ValidationReport) -> None:
    if report.valid:
        line = Text().append("valid", style="green").append(f"    {sanitize(origin)}")
        line.append(f"  {report.title} ({report.dialect})  {sanitize(report.id)}", style="dim")
        printer.line(line)
    else:
        line = Text().append("invalid", style="red").append(f"  {sanitize(origin)}")
        known = f"  looks like {report.title} ({report.dialect})" if report.dialect else ""
        printer.line(line.append(f"{known}: {count_noun(len(report.problems), 'problem')}"))
    for problem in report.problems:
        hint = f" {problem.hint}" if problem.hint else ""
        printer.line(
            Text().append(f"  {sanitize(problem.path)}", style="bold").append(f"  {sanitize(problem.message + hint)}")
        )
    for warning in report.warnings:
        printer.note(f"  warning: {warning}", style="yellow")
    for loss in report.losses:
        printer.note(f"  lost: {loss.path} ({loss.reason})")

"""`waypost verify ID|FILE|DOMAIN`, `waypost verify --log`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from waypost.cli.badges import badge, word
from waypost.cli.commands.verify_log import ENTRIES, verify_log
from waypost.cli.options import example
from waypost.cli.output import Printer
from waypost.cli.resolution import exit_code, show_resolution
from waypost.cli.resolving import Looking, looking_options, resolve
from waypost.cli.session import Session, with_session
from waypost.cli.text import clean
from waypost.client.results import Verification, verification_of
from waypost.dialects import decode_document
from waypost.dialects.codec import DecodeContext
from waypost.domains.naming import is_domain
from waypost.errors import NotFound, Unauthorized, Unavailable
from waypost.model.times import to_rfc3339
from waypost.model.verdict import summary
from waypost.registry.verification import judge_with
from waypost.trust.announced import parse_announced_key
from waypost.trust.checks.bound import BoundKey

EXIT_FAILED = 1
_MARKS = {
    "passed": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "unknown": ("?", "yellow"),
    "not_checked": ("-", "dim"),
}


@click.command(
    epilog=example(
        "waypost verify agent:alice.example.com",
        "waypost verify alice.example.com",
        "waypost verify agent-card.json --key alice.pem",
        "waypost verify weather-reporter -o json | jq .trust.level",
        "waypost verify --log",
    )
)
@click.argument("target", required=False, metavar="ID|FILE|DOMAIN")
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="PEM",
    help="Check a file with this public key, without a service; repeat for more.",
)
@click.option("--dialect", metavar="NAME", help="Of a file, when its content should not decide.")
@click.option("--log", is_flag=True, help="Check the audit trail of the service against what was seen before.")
@click.option(
    "--entries",
    type=click.IntRange(min=0),
    default=ENTRIES,
    show_default=True,
    help="With --log: how many of the newest entries are proved to be in it.",
)
@looking_options
@with_session
def command(
    session: Session,
    target: str | None,
    keys: tuple[Path, ...],
    dialect: str | None,
    entries: int,
    looking: Looking,
    *,
    log: bool,
) -> int:
    """Check now how far an agent, a document in a file, or a domain can be trusted: every check, step by step, with its
    evidence.

    A domain is followed to its agent, rung by rung, without a service; --server lets that service do it.

    Exits with 1 when a check failed. A signature that holds, but by a key that nothing binds to the agent, is `?`: it proves
    nothing about who the agent is.
    """
    if log:
        return verify_log(session, entries)
    if target is None:
        raise click.UsageError("Say what to check: an ID, a FILE, a DOMAIN, or --log.")
    printer = session.printer()
    path = Path(target)
    if path.is_file():
        found = _verify_file(session, printer, path, keys, dialect)
    elif keys:
        raise click.UsageError(f"--key checks files, and {target!r} is none.")
    elif is_domain(target) and not target.lower().startswith("agent:"):
        return _verify_domain(session, looking, printer, target)
    else:
        try:
            found = _verify_agent(session, target)
        except (NotFound, Unavailable, Unauthorized):
            if not is_domain(target):
                raise
            return _verify_domain(session, looking, printer, target)
    _show(printer, found)
    return EXIT_FAILED if found.level == "failed" else 0


def _verify_agent(session: Session, target: str) -> Verification:
    with session.client() as client:
        return client.verify(target)


def _verify_domain(session: Session, looking: Looking, printer: Printer, target: str) -> int:
    found = resolve(session, looking, target, "key")
    show_resolution(printer, found)
    fallen = [verdict for verdict in found.verdicts if verdict.state == "failed"]
    for verdict in fallen:
        printer.note(f"{verdict.check} failed: {verdict.reason}", "red")
    if not fallen and not found.is_resolved:
        printer.note(f"{found.outcome.replace('_', ' ')}: {found.reason}", "red")
    return exit_code(found)


# --- Files ----------------------------------------------------------------------------------------


def _verify_file(
    session: Session, printer: Printer, path: Path, keys: tuple[Path, ...], dialect: str | None
) -> Verification:
    """With keys that are given, here; else by the service, which knows what is bound to the agent."""
    if keys:
        return _verify_here(path, dialect, [_read_key(key) for key in keys])
    try:
        with session.client() as client:
            return client.verify_document(path, dialect)
    except (Unavailable, Unauthorized) as error:
        printer.note(f"No service to ask for keys ({error.message}) Signatures are checked without any: see --key.")
        return _verify_here(path, dialect, [])


def _verify_here(path: Path, dialect: str | None, keys: list[BoundKey]) -> Verification:
    now = time.time()
    document = path.read_bytes()
    name, _, decoded = decode_document(document, dialect, DecodeContext(now=now))
    told = summary(judge_with(name, document, keys, (), now))
    answer = {"id": decoded.record.id, "trust": told, "documents": [{"dialect": name, **told}]}
    return verification_of({**answer, "checked_at": to_rfc3339(now)})


def _read_key(path: Path) -> BoundKey:
    return BoundKey(parse_announced_key(path.read_text("utf-8"), str(path)), f"--key {path.name}", own=True)


# --- Showing --------------------------------------------------------------------------------------


def _show(printer: Printer, found: Verification) -> None:
    if not printer.is_human:
        printer.value(found.document)
        return
    for line in _lines(found):
        printer.line(line)
    if found.shown and found.shown != found.level:
        printer.note(f"Other answers still show {word(found.shown)}: register the document again.")


def _lines(found: Verification) -> Iterator[Text]:
    yield badge(found.level).append(f"  {clean(found.id)}", style="not bold default")
    for document in found.document.get("documents", ()):
        yield Text(f"  {clean(str(document.get('dialect', '')))}", style="bold")
        checks = document.get("checks") or ({"check": "signature", "state": "not_checked", "reason": _NO_SIGNATURES},)
        for check in checks:
            yield from _check_lines(check)


_NO_SIGNATURES = "this dialect has none"


def _check_lines(check: dict[str, Any]) -> Iterator[Text]:
    mark, style = _MARKS.get(check["state"], ("?", ""))
    line = Text(f"    {mark} ", style=style).append(clean(check["check"]), style="default")
    yield line.append(f"  {clean(check.get('reason') or check['state'].replace('_', ' '))}", style="dim")
    for name, value in (check.get("evidence") or {}).items():
        yield Text(f"        {clean(name)}: {clean(str(value))}", style="dim")

"""`waypost domain prove|check|list|remove`."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from rich.text import Text

from waypost.cli.options import example
from waypost.cli.output import Printer, without_none
from waypost.cli.session import Session, with_session
from waypost.cli.text import clean
from waypost.client.results import DomainClaim

_STYLES = {"proven": "green", "pending": "yellow", "lapsed": "red"}


@click.group(epilog=example("waypost domain prove agents.example.com", "waypost domain check agents.example.com"))
def command() -> None:
    """Prove that a domain is yours.

    Agents of a proven domain are told as such, and an ADP document of it is served under it.
    """


@command.command(
    "prove",
    epilog=example("waypost domain prove agents.example.com", "waypost domain prove example.com --method http"),
)
@click.argument("domain")
@click.option(
    "--method",
    type=click.Choice(("dns", "http")),
    default="dns",
    show_default=True,
    help="By a TXT record, for the domain and all below it, or by a file on its web server, for itself alone.",
)
@with_session
def prove(session: Session, domain: str, method: str) -> None:
    """Claim a domain, and show what to publish where."""
    printer = session.printer()
    with session.client() as client:
        claim = client.prove_domain(domain, method)
    _show(printer, claim)
    if printer.is_human and claim.state == "pending":
        what = "TXT record" if claim.method == "dns" else "file"
        printer.note(f"Publish this {what}, then run: waypost domain check {claim.domain}")


@command.command("check", epilog=example("waypost domain check agents.example.com"))
@click.argument("domain")
@with_session
def check(session: Session, domain: str) -> None:
    """Look for what was to be published. The exit code is 75 while it is not there."""
    with session.client() as client:
        _show(session.printer(), client.check_domain(domain))


@command.command("list", epilog=example("waypost domain list -o json"))
@with_session
def list_claims(session: Session) -> None:
    """Show the domains that you claim; an admin sees all."""
    printer = session.printer()
    with session.client() as client:
        claims = client.list_domains()
    if not printer.is_human:
        printer.values(_value(claim) for claim in claims)
        return
    for claim in claims:
        printer.line(_line(claim).append(f"  {clean(claim.subject)}", style="dim"))


@command.command("remove", epilog=example("waypost domain remove agents.example.com"))
@click.argument("domain")
@click.option("--subject", metavar="NAME", help="Whose claim; for admin.")
@with_session
def remove(session: Session, domain: str, subject: str | None) -> None:
    """Give up a domain. What was shown as proven no longer is."""
    with session.client() as client:
        client.remove_domain(domain, subject)


def _show(printer: Printer, claim: DomainClaim) -> None:
    if not printer.is_human:
        printer.value(_value(claim))
        return
    printer.line(_line(claim))
    if claim.state == "pending":
        label = "TXT record at" if claim.method == "dns" else "file at"
        printer.line(f"  {label}  {clean(claim.place)}")
        printer.line(f"  with  {clean(claim.line)}")


def _line(claim: DomainClaim) -> Text:
    line = Text().append(f"{claim.state:<8}", style=_STYLES.get(claim.state, ""))
    line.append(f"  {clean(claim.domain)}").append(f"  ({claim.method})", style="dim")
    if claim.state == "pending" and claim.expires_at:
        line.append(f"  until {claim.expires_at}", style="dim")
    return line


def _value(claim: DomainClaim) -> dict[str, Any]:
    return without_none(msgspec.to_builtins(claim))

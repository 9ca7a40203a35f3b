"""`waypost host DOMAIN AGENT`."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from rich.text import Text

from waypost.cli.options import example
from waypost.cli.output import Printer, sanitize, without_none
from waypost.cli.session import Session, with_session
from waypost.cli.views import show_receipt
from waypost.client.results import DomainClaim


@click.command(
    epilog=example(
        "waypost host alice.example.com agent:alice.example.com", "waypost host --end agent:alice.example.com"
    )
)
@click.argument("domain", required=False)
@click.argument("agent", required=False)
@click.option("--end", metavar="AGENT", help="Stop answering for this agent.")
@with_session
def host(session: Session, domain: str | None, agent: str | None, end: str | None) -> None:
    """Answer for AGENT whenever the Host header names DOMAIN: its documents at the well-known paths become the agent's.

    The domain itself must lead to this service, by DNS or by a proxy.
    """
    if (end is None) == (domain is None or agent is None):
        raise click.UsageError("Name a DOMAIN and an AGENT, or one agent with --end.")
    with session.client() as client:
        show_receipt(session.printer(), client.host(end or agent or "", domain if end is None else None))


# ---- `waypost domain prove|check|list|remove`.

_STYLES = {"proven": "green", "pending": "yellow", "lapsed": "red"}


@click.group(epilog=example("waypost domain prove agents.example.com", "waypost domain check agents.example.com"))
def domain_group() -> None:
    """Prove that a domain is yours.

    Agents of a proven domain are told as such, and an ADP document of it is served under it.
    """


@domain_group.command(
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
    _show_claim(printer, claim)
    if printer.is_human and claim.state == "pending":
        what = "TXT record" if claim.method == "dns" else "file"
        printer.note(f"Publish this {what}, then run: waypost domain check {claim.domain}")


@domain_group.command("check", epilog=example("waypost domain check agents.example.com"))
@click.argument("domain")
@with_session
def check(session: Session, domain: str) -> None:
    """Look for what was to be published. The exit code is 75 while it is not there."""
    with session.client() as client:
        _show_claim(session.printer(), client.check_domain(domain))


@domain_group.command("list", epilog=example("waypost domain list -o json"))
@with_session
def list_claims(session: Session) -> None:
    """Show the domains that you claim; an admin sees all."""
    printer = session.printer()
    with session.client() as client:
        claims = client.list_domains()
    if not printer.is_human:
        printer.values(_claim_value(claim) for claim in claims)
        return
    for claim in claims:
        printer.line(_claim_line(claim).append(f"  {sanitize(claim.subject)}", style="dim"))


@domain_group.command("remove", epilog=example("waypost domain remove agents.example.com"))
@click.argument("domain")
@click.option("--subject", metavar="NAME", help="Whose claim; for admin.")
@with_session
def remove(session: Session, domain: str, subject: str | None) -> None:
    """Give up a domain. What was shown as proven no longer is."""
    with session.client() as client:
        client.remove_domain(domain, subject)


def _show_claim(printer: Printer, claim: DomainClaim) -> None:
    if not printer.is_human:
        printer.value(_claim_value(claim))
        return
    printer.line(_claim_line(claim))
    if claim.state == "pending":
        label = "TXT record at" if claim.method == "dns" else "file at"
        printer.line(f"  {label}  {sanitize(claim.place)}")
        printer.line(f"  with  {sanitize(claim.line)}")


def _claim_line(claim: DomainClaim) -> Text:
    line = Text().append(f"{claim.state:<8}", style=_STYLES.get(claim.state, ""))
    line.append(f"  {sanitize(claim.domain)}").append(f"  ({claim.method})", style="dim")
    if claim.state == "pending" and claim.expires_at:
        line.append(f"  until {claim.expires_at}", style="dim")
    return line


def _claim_value(claim: DomainClaim) -> dict[str, Any]:
    return without_none(msgspec.to_builtins(claim))

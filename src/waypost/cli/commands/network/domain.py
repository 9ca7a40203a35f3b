"""`waypost host DOMAIN AGENT` and `waypost domain prove|check|list|remove`."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from rich.text import Text

from waypost.cli.completion import complete_agent
from waypost.cli.options import example
from waypost.cli.output import Printer, sanitize, without_none
from waypost.cli.session import Session, use_agent, with_session
from waypost.cli.views import show_receipt
from waypost.responses.trust import DomainClaim


@click.command(
    epilog=example(
        "waypost host alice.example.com agent:alice.example.com", "waypost host --end agent:alice.example.com"
    )
)
@click.argument("domain", required=False)
@click.argument("agent", required=False, shell_complete=complete_agent)
@click.option("--end", metavar="AGENT", help="Stop serving this agent.")
@with_session
def host(session: Session, domain: str | None, agent: str | None, end: str | None) -> None:
    """Serve AGENT under DOMAIN: for requests with that Host header, the well-known documents are those of the agent.

    The domain must point to this service, by DNS or through a proxy.
    """
    if (end is None) == (domain is None or agent is None):
        raise click.UsageError("Expected DOMAIN and AGENT, or --end AGENT.")
    with session.client() as client:
        served = domain if end is None else None
        receipt = use_agent(client, end or agent or "", lambda agent_id: client.host(agent_id, served))
        show_receipt(session.printer(), receipt)


_STYLES = {"proven": "green", "pending": "yellow", "lapsed": "red"}


@click.group(epilog=example("waypost domain prove agents.example.com", "waypost domain check agents.example.com"))
def domain_group() -> None:
    """Prove that a domain is yours.

    Agents of a proven domain are marked as such, and its ADP document is served under it.
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
    help="A TXT record, which covers subdomains, or a file on its web server, which does not.",
)
@with_session
def prove(session: Session, domain: str, method: str) -> None:
    """Claim a domain, and show the record or file to publish."""
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
    """Check the published proof. The exit code is 75 while it is missing."""
    with session.client() as client:
        _show_claim(session.printer(), client.check_domain(domain))


@domain_group.command("list", epilog=example("waypost domain list -o json"))
@with_session
def list_claims(session: Session) -> None:
    """List your domain claims; an admin sees all."""
    printer = session.printer()
    with session.client() as client:
        claims = client.list_domains()
    if not printer.is_human:
        printer.values(_claim_value(claim) for claim in claims)
        return
    for claim in claims:
        printer.line(_claim_line(claim).append(f"  {sanitize(claim.subject)}", style="dim"))
    if not claims:
        printer.note("No domain claims. Make one with `waypost domain prove DOMAIN`.")


@domain_group.command("remove", epilog=example("waypost domain remove agents.example.com"))
@click.argument("domain")
@click.option("--subject", metavar="NAME", help="The subject of the claim; for admins.")
@with_session
def remove(session: Session, domain: str, subject: str | None) -> None:
    """Remove a domain claim, and with it the proof."""
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

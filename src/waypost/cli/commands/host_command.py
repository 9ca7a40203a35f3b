"""`waypost host DOMAIN AGENT`."""

from __future__ import annotations

import click

from waypost.cli.options import example
from waypost.cli.receipts import show_receipt
from waypost.cli.session import Session, with_session


@click.command(
    epilog=example(
        "waypost host alice.example.com agent:alice.example.com", "waypost host --end agent:alice.example.com"
    )
)
@click.argument("domain", required=False)
@click.argument("agent", required=False)
@click.option("--end", metavar="AGENT", help="Stop answering for this agent.")
@with_session
def command(session: Session, domain: str | None, agent: str | None, end: str | None) -> None:
    """Answer for AGENT whenever the Host header names DOMAIN: its documents at the well-known paths become the agent's.

    The domain itself must lead to this service, by DNS or by a proxy.
    """
    if (end is None) == (domain is None or agent is None):
        raise click.UsageError("Name a DOMAIN and an AGENT, or one agent with --end.")
    with session.client() as client:
        show_receipt(session.printer(), client.host(end or agent or "", domain if end is None else None))

"""`waypost resolve DOMAIN|AGENT-URI|URL`."""

from __future__ import annotations

import click

from waypost.cli.options import example
from waypost.cli.resolution import (
    LookupOptions,
    exit_code,
    lookup_options,
    read_organisation,
    resolve,
    show_organisation,
    show_resolution,
)
from waypost.cli.session import Session, with_session
from waypost.model.resolution import DEPTHS, Depth

EXIT_FAILED = 1


@click.command(
    epilog=example(
        "waypost resolve alice.example.com",
        "waypost resolve agent:alice.example.com --until dns",
        "waypost resolve example.com --agents",
        "waypost resolve https://alice.example.com/.well-known/agent.json -o json",
        "waypost resolve alice.example.com --resolver 127.0.0.1:5353 --trust-anchors anchors.txt --allow-cidr 127.0.0.0/8",
    )
)
@click.argument("name", metavar="DOMAIN|AGENT-URI|URL")
@click.option("--until", type=click.Choice(DEPTHS), default="key", show_default=True, help="How far to ask.")
@click.option("--agents", is_flag=True, help="List the agents of an organisation instead.")
@lookup_options
@with_session
def resolve_name(session: Session, name: str, until: Depth, looking: LookupOptions, *, agents: bool) -> int:
    """Follow a domain to its agent: where it is, what it says of itself, and how far that is proven, step by step.

    No service is needed: DNSSEC is validated here, from the root or from --trust-anchors on. With --server that service
    does it instead. Exits with 1 when there is no agent, or when it is not to be trusted, and with 75 when the DNS could not be
    asked.
    """
    printer = session.printer()
    if agents:
        index = read_organisation(session, looking, name)
        show_organisation(printer, index)
        return 0 if index.outcome == "resolved" else EXIT_FAILED
    found = resolve(session, looking, name, until)
    show_resolution(printer, found)
    if found.outcome == "not_found":
        printer.note(f"An organisation may list its agents: waypost resolve {found.domain} --agents")
    if any(step.code == "denied" for step in found.steps):
        printer.note("A name leads into a private network only where --allow-cidr (setting allow_cidrs) lets it.")
    return exit_code(found)

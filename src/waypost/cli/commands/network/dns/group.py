"""`waypost dns zone|publish|check|serve`."""

from __future__ import annotations

import click

from waypost.cli.commands.network.dns.check import check
from waypost.cli.commands.network.dns.publish import publish
from waypost.cli.commands.network.dns.serve import serve
from waypost.cli.commands.network.dns.zone_options import ZoneOptions, fetch_zone, zone_options
from waypost.cli.options import example
from waypost.cli.session import Session, with_session
from waypost.domains.zone import ZONE_FORMATS


@click.group()
def dns() -> None:
    """Write, publish and check the DNS records of an agent; serve a zone to try them."""


@dns.command(
    "zone",
    epilog=example(
        "waypost dns zone alice.example.com",
        "waypost dns zone alice.example.com --tlsa-cert alice.pem --org example.com >> example.com.zone",
        "waypost dns zone agent:alice.example.com --format terraform > alice.tf",
    ),
)
@click.argument("agent", metavar="AGENT|DOMAIN")
@click.option(
    "--format", "form", type=click.Choice(ZONE_FORMATS), default="bind", show_default=True, help="What to write it for."
)
@zone_options
@with_session
def zone(session: Session, agent: str, form: str, wanted: ZoneOptions) -> None:
    """Print the records that lead to an agent: SVCB, TXT and SRV, TLSA, and the index of an organisation.

    bind: for BIND, knot, nsd and others that read zone files; the keys of DNS-AID by their numbers. managed: for DNS that
    refuses such keys. terraform: the same as resources of Route 53.
    """
    printer = session.printer()
    found = fetch_zone(session, agent, wanted, form)
    if not printer.is_human:
        printer.value(found.document)
        return
    printer.raw(found.text.encode())
    for warning in found.warnings:
        printer.note(warning)


for _part in (publish, check, serve):
    dns.add_command(_part)

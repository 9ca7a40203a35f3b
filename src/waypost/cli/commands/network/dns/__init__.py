"""`waypost dns zone|publish|check|serve`."""

from __future__ import annotations

import click

from waypost.cli.commands.network.dns.check import check
from waypost.cli.commands.network.dns.publish import publish
from waypost.cli.commands.network.dns.serve import serve
from waypost.cli.commands.network.dns.zone import zone


@click.group()
def dns() -> None:
    """Generate, publish and check the DNS records of an agent; serve a zone to try them."""


for _command in (zone, publish, check, serve):
    dns.add_command(_command)

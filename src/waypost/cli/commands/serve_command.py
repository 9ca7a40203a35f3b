"""`waypost serve`."""

from __future__ import annotations

import click

from waypost.cli.options import example, service_options
from waypost.cli.service import run_service
from waypost.settings import Settings


@click.command(
    epilog=example(
        "waypost serve",
        "waypost serve --host 0.0.0.0 --base-url https://agents.example.net --anonymous-read",
        "waypost serve --store memory --open --samples",
    )
)
@service_options
def command(settings: Settings) -> None:
    """Run the service until it is told to stop (Ctrl-C, SIGTERM).

    The first line on stdout is `waypost ready URL`; logs go to stderr. At the first start an admin token is written to
    admin.token in the data folder, where the commands on this machine find it.
    """
    run_service(settings)

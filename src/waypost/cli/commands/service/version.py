"""`waypost version`. Loads nothing that it does not need: people run it to see whether things work at all."""

from __future__ import annotations

import json
import platform
from typing import Any

import click

from waypost import __version__
from waypost.cli.options import example, merge_options, shared_options


@click.command(epilog=example("waypost version", "waypost version -o json"))
@shared_options
@click.pass_context
def version(context: click.Context, /, **given: Any) -> None:
    """Show the version of Waypost; as JSON that of Python too."""
    if merge_options(context, given).get("output", "human") == "human":
        click.echo(f"waypost {__version__}")
    else:
        click.echo(json.dumps({"waypost": __version__, "python": platform.python_version()}))

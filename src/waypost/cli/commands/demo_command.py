"""`waypost demo`."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import click
import msgspec

from waypost.cli.options import example, service_options
from waypost.cli.service import run_service
from waypost.settings import Settings

TRIALS = """
Open {url} in a browser, or try, in another terminal:
  {waypost} find "translate an invoice" --explain{server}
  curl -s {url}/.well-known/agentframework/v1/agents
  {waypost} watch{server}

Ctrl-C ends the demo; nothing is kept."""


@click.command(epilog=example("waypost demo", "waypost demo --port 0"))
@service_options
def command(settings: Settings) -> None:
    """Try it: a service in memory with sample agents, open to every program on this machine."""
    demo = msgspec.structs.replace(settings, store="memory", workers=1, open=True, samples=True)
    run_service(demo, tell=_trials)


def _trials(url: str) -> str:
    server = "" if url == "http://127.0.0.1:8440" else f" --server {url}"
    return TRIALS.format(url=url, server=server, waypost=_own_name())


def _own_name() -> str:
    """What to type to get this command: its path, where a shell would not find it by name."""
    here = Path(sys.argv[0]).absolute()
    found = shutil.which("waypost")
    if here.name != "waypost" or (found and Path(found).samefile(here)):
        return "waypost"
    return shlex.quote(str(here))

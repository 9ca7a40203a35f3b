"""`--as AGENT --key FILE`: an agent signs what a command asks for, instead of showing a token (P-5)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def signed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the two options; what they add up to arrives as `signer`, None without them."""

    @functools.wraps(function)
    def command(*arguments: Any, as_agent: str | None, key: Path | None, **given: Any) -> Any:
        if (as_agent is None) != (key is None):
            raise click.UsageError("An agent signs with --as and --key together.")
        return function(*arguments, signer=_signer(as_agent, key), **given)

    for option in (
        click.option("--key", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Its Ed25519 key."),
        click.option("--as", "as_agent", metavar="AGENT", help="Sign as this agent, instead of showing a token."),
    ):
        command = option(command)
    return command


def _signer(agent: str | None, key: Path | None) -> Any:
    if agent is None or key is None:
        return None
    # Keys are loaded for who signs only: they are most of what a command would wait for.
    from waypost.client.agent_signer import AgentSigner
    from waypost.client.key_files import read_key

    return AgentSigner(agent, read_key(key))

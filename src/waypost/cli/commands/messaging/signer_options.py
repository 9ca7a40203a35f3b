"""`--as AGENT --key FILE`: an agent signs what a command asks for, instead of showing a token (P-5).

Where the service may speak for an agent that it hosts, `--as AGENT` alone asks it to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def signer_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the two options; what they add up to arrives as `signer`, None without them."""

    @functools.wraps(function)
    def command(*arguments: Any, as_agent: str | None, key: Path | None, **given: Any) -> Any:
        if as_agent is not None and key is None:
            raise click.UsageError("An agent signs with --as and --key together.")
        return function(*arguments, signer=_signer(as_agent, key), **given)

    return _with_options(command, "Sign as this agent, instead of showing a token.")


def signer_or_hosted_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, and without a key the agent arrives as `hosted`: the service is to sign in its name."""

    @functools.wraps(function)
    def command(*arguments: Any, as_agent: str | None, key: Path | None, **given: Any) -> Any:
        signer = _signer(as_agent, key)
        return function(*arguments, signer=signer, hosted=None if signer is not None else as_agent, **given)

    return _with_options(command, "In the name of this agent: signed with --key, else by the service that hosts it.")


def _with_options(command: Callable[..., Any], meaning: str) -> Callable[..., Any]:
    key = click.Path(path_type=Path, dir_okay=False)
    command = click.option("--key", type=key, metavar="FILE", help="Its Ed25519 key.")(command)
    return click.option("--as", "as_agent", metavar="AGENT", help=meaning)(command)


def _signer(agent: str | None, key: Path | None) -> Any:
    if key is None:
        return None
    if agent is None:
        raise click.UsageError("Whose key is it? An agent signs with --as and --key together.")
    # Keys are loaded for who signs only: they are most of what a command would wait for.
    from waypost.client.agent_signer import AgentSigner
    from waypost.client.identity import read_key

    return AgentSigner(agent, read_key(key))

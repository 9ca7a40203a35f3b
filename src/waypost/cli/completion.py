"""Completion of ids and values in the shell, from the service that the command line names. It never prints an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from waypost import limits
from waypost.errors import WaypostError

Completer = Callable[[click.Context, click.Parameter, str], list[str]]

_TIMEOUT_SECONDS = 2.0  # nobody waits longer for a suggestion

DIALECTS = ("profile", "af", "rtfs", "announce", "adp", "a2a", "ard", "mcp", "oasf")


def complete_agent(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Ids that begin with the word, or whose last part does; else similar ids."""
    try:
        with _client(context) as client:
            page = client.page(limit=limits.PAGE_MAX)
            found = list(_matching_ids((str(agent["id"]) for agent in page.agents), incomplete))
            if found or not incomplete or page.next_cursor is None:
                return found
            return [candidate.id for candidate in client.find(incomplete, limit=limits.NEAR_IDS).candidates]
    except WaypostError:
        return []


def complete_facet(name: str) -> Completer:
    """Values of a facet: the tags, protocols, statuses or owners in use."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        try:
            with _client(context) as client:
                counts = client.facets(name).facets.get(name, ())
        except WaypostError:
            return []
        return [count.value for count in counts if count.value.startswith(incomplete)]

    return complete


def complete_peer(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of the registries that the service follows."""
    try:
        with _client(context) as client:
            return [peer.name for peer in client.peers_list() if peer.name.startswith(incomplete)]
    except WaypostError:
        return []


def complete_dialect(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in DIALECTS if name.startswith(incomplete)]


def _matching_ids(ids: Iterable[str], incomplete: str) -> Iterable[str]:
    folded = incomplete.lower()
    for agent_id in ids:
        lower = agent_id.lower()
        if lower.startswith(folded) or lower[max(lower.rfind("/"), lower.rfind(":")) + 1 :].startswith(folded):
            yield agent_id
        elif incomplete.startswith("//") and f":{folded}" in lower:  # bash splits words at a colon
            yield agent_id[lower.index(f":{folded}") + 1 :]


def _client(context: click.Context) -> Any:
    # Imported here: the client takes a tenth of a second to load, and completion of commands does without.
    from waypost.cli.session import Session

    given = {
        **context.find_root().params,
        **{name: value for name, value in context.params.items() if value is not None},
    }
    shared = {name: given[name] for name in Session.__struct_fields__ if given.get(name) is not None}
    return Session(**{**shared, "timeout": _TIMEOUT_SECONDS}).client()

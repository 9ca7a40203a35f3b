"""`waypost peers add|list|show|sync|pause|resume|remove`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from waypost.cli.completion import complete_peer
from waypost.cli.options import WholeNumber, example, parse_duration_option
from waypost.cli.output import sanitize
from waypost.cli.session import Session, with_session
from waypost.errors import InvalidParameter
from waypost.model.principal import VISIBILITIES
from waypost.responses.federation import PEER_KINDS, PeerView

_NOTHING: Final[tuple[object, ...]] = (None, "", (), [], {})  # members that a person need not see


@click.group()
def peers() -> None:
    """Follow other registries: their agents are found here, with their origin and a verdict of this service."""


@peers.command(
    "add",
    epilog=example(
        "waypost peers add https://registry.example",
        "waypost peers add https://registry.example --namespace 'urn:air:example.com:*' --visibility public",
        "waypost peers add http://127.0.0.1:8441 --name neighbour --dry-run",
    ),
)
@click.argument("url", metavar="URL")
@click.option("--name", metavar="NAME", help="A short name.  [default: the host of the URL]")
@click.option("--kind", type=click.Choice(PEER_KINDS), help="What the other side is.  [default: found by asking it]")
@click.option("--pull/--no-pull", default=True, help="Whether to copy its public agents.  [default: pull]")
@click.option(
    "--ask/--no-ask", default=False, help="Whether to pass searches on to it that want it.  [default: no-ask]"
)
@click.option(
    "--namespace", "namespaces", multiple=True, metavar="PATTERN", help="Take only ids like this, with `*`. Repeatable."
)
@click.option(
    "--visibility", type=click.Choice(VISIBILITIES), default="internal", show_default=True, help="Who sees its agents."
)
@click.option("--reexport", is_flag=True, help="Pass its public agents on to those who follow this registry.")
@click.option("--key", metavar="FINGERPRINT", help="Refuse the peer if it has another key.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the token to send to the peer.",
)
@click.option(
    "--every",
    type=parse_duration_option,
    metavar="DURATION",
    help="The pause between two pulls of kinds without a feed.",
)
@click.option(
    "--max-records", type=WholeNumber(1), metavar="NUMBER", help="Pause the peer if it has more.  [default: 100000]"
)
@click.option("--dry-run", is_flag=True, help="Contact it and show what would come; store nothing.")
@with_session
def add(
    session: Session,
    url: str,
    name: str | None,
    kind: str | None,
    pull: bool,
    ask: bool,
    namespaces: tuple[str, ...],
    visibility: str,
    reexport: bool,
    key: str | None,
    token_file: Path | None,
    every: int | None,
    max_records: int | None,
    dry_run: bool,
) -> None:
    """Follow the registry at URL. Its key is shown and pinned."""
    token = None
    if token_file is not None:
        token = token_file.read_text("utf-8", "replace").strip()
        if not token:
            raise InvalidParameter(f"{token_file} is empty.", path="--token-file")
    printer = session.printer()
    with session.client() as client:
        peer = client.peers_add(
            url,
            name=name,
            kind=kind,
            pull=pull,
            ask=ask,
            namespaces=namespaces,
            visibility=visibility,
            reexport=reexport,
            key=key,
            token=token,
            every_seconds=every,
            max_records=max_records,
            dry_run=dry_run,
        )
    if not printer.is_human:
        printer.value(msgspec.to_builtins(peer))
        return
    printer.line(f"{'would add' if dry_run else 'added'}      {sanitize(peer.name)}  {sanitize(peer.url)}")
    printer.line(f"kind       {peer.kind}")
    if peer.key:
        printer.line(f"key        {sanitize(peer.key)}")
    if dry_run and peer.pull:
        printer.line(f"agents     {'' if peer.complete else 'at least '}{peer.records}")
        for agent_id in peer.sample:
            printer.line(f"           {sanitize(agent_id)}")
        if peer.parked:
            reasons = ", ".join(f"{count} {sanitize(reason)}" for reason, count in sorted(peer.parked_reasons.items()))
            printer.line(f"not taken  {reasons}")
        if peer.error:
            printer.line(f"problem    {sanitize(peer.error)}")


@peers.command("list", epilog=example("waypost peers list", "waypost peers list -o json"))
@with_session
def list_peers(session: Session) -> None:
    """List the peers: their state, agents, agents that were not taken and why, last contact, and what is wrong."""
    printer = session.printer()
    with session.client() as client:
        found = client.peers_list()
    if not printer.is_human:
        printer.values(msgspec.to_builtins(peer) for peer in found)
        return
    printer.rows(
        (
            sanitize(peer.name),
            peer.state,
            _counts(peer),
            peer.last_contact or "never",
            sanitize(peer.error or peer.url),
        )
        for peer in found
    )
    if not found:
        printer.note("No peers. Follow one with `waypost peers add URL`.")


def _counts(peer: PeerView) -> str:
    """How many agents of a peer are here, and why others are not."""
    found = f"{peer.records} agent{'' if peer.records == 1 else 's'}"
    if not peer.parked:
        return found
    return f"{found}, {peer.parked} not taken: {', '.join(sanitize(reason) for reason in sorted(peer.parked_reasons))}"


@peers.command("show", epilog=example("waypost peers show neighbour"))
@click.argument("name", metavar="NAME", shell_complete=complete_peer)
@with_session
def show(session: Session, name: str) -> None:
    """Show everything about the peer NAME."""
    with session.client() as client:
        _print_peer(session, client.peers_show(name))


@peers.command("sync", epilog=example("waypost peers sync neighbour"))
@click.argument("name", metavar="NAME", shell_complete=complete_peer)
@with_session
def sync(session: Session, name: str) -> None:
    """Pull from the peer NAME now."""
    with session.client() as client:
        _print_peer(session, client.peers_sync(name))


@peers.command("pause", epilog=example("waypost peers pause neighbour"))
@click.argument("name", metavar="NAME", shell_complete=complete_peer)
@with_session
def pause(session: Session, name: str) -> None:
    """Stop pulling from the peer NAME. Its agents stay."""
    with session.client() as client:
        _print_peer(session, client.peers_pause(name))


@peers.command("resume", epilog=example("waypost peers resume neighbour"))
@click.argument("name", metavar="NAME", shell_complete=complete_peer)
@with_session
def resume(session: Session, name: str) -> None:
    """Pull from the paused peer NAME again."""
    with session.client() as client:
        _print_peer(session, client.peers_resume(name))


@peers.command("remove", epilog=example("waypost peers remove neighbour"))
@click.argument("name", metavar="NAME", shell_complete=complete_peer)
@click.option("--keep", is_flag=True, help="Leave its agents here until their leases end.")
@with_session
def remove(session: Session, name: str, keep: bool) -> None:
    """Stop following the peer NAME and remove its agents."""
    printer = session.printer()
    with session.client() as client:
        client.peers_remove(name, keep=keep)
    if printer.is_human:
        printer.line(f"removed    {sanitize(name)}")
    else:
        printer.value({"name": name, "outcome": "removed"})


def _print_peer(session: Session, peer: PeerView) -> None:
    printer = session.printer()
    document = msgspec.to_builtins(peer)
    if not printer.is_human:
        printer.value(document)
        return
    printer.rows((name, sanitize(_describe(value))) for name, value in document.items() if value not in _NOTHING)


def _describe(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{count} {name}" for name, count in sorted(value.items()))
    return ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)

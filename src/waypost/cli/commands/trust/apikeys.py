"""`waypost apikeys create|list|revoke`."""

from __future__ import annotations

import click
import msgspec

from waypost.cli.options import example, parse_duration_option, scopes_option
from waypost.cli.output import sanitize
from waypost.cli.session import Session, with_session


@click.group()
def apikeys() -> None:
    """Manage API keys: credentials for programs, valid until they expire or are revoked."""


@apikeys.command(
    "create",
    epilog=example(
        "waypost apikeys create --sub ci --scope discover:read --scope discover:write --ttl 90d",
        "waypost apikeys create --sub crawler --scope discover:read --note 'search of the intranet'",
    ),
)
@click.option("--sub", required=True, metavar="NAME", help="The subject of the key: the owner of what it registers.")
@scopes_option("A scope of the key. Repeatable.")
@click.option(
    "--ttl", type=parse_duration_option, metavar="DURATION", help="How long it is valid.  [default: until revoked]"
)
@click.option("--note", default="", metavar="TEXT", help="A text for the list of keys.")
@with_session
def create(session: Session, sub: str, scopes: tuple[str, ...], ttl: int | None, note: str) -> None:
    """Create an API key and print it. It is shown only once: the service stores a hash."""
    printer = session.printer()
    with session.client() as client:
        created = client.apikeys_create(sub, scopes, ttl_seconds=ttl, note=note)
    if printer.is_human:
        printer.raw(created.key.encode())
        if printer.is_terminal:
            printer.note(f"This key is not shown again. Revoke it with `waypost apikeys revoke {created.id}`.")
    else:
        printer.value(msgspec.to_builtins(created))


@apikeys.command("list", epilog=example("waypost apikeys list -o json"))
@with_session
def list_keys(session: Session) -> None:
    """List the API keys, without their secrets."""
    printer = session.printer()
    with session.client() as client:
        keys = client.apikeys_list()
    if not printer.is_human:
        printer.values(msgspec.to_builtins(key) for key in keys)
        return
    printer.rows(
        (key.id, sanitize(key.sub), " ".join(key.scopes), key.expires_at or "no expiry", sanitize(key.note))
        for key in keys
    )
    if not keys:
        printer.note("No API keys. Create one with `waypost apikeys create`.")


@apikeys.command("revoke", epilog=example("waypost apikeys revoke 3f9a0c52d7e1b846"))
@click.argument("id", metavar="ID")
@with_session
def revoke(session: Session, id: str) -> None:  # noqa: A002 - the name of the argument
    """Revoke the API key ID, at once and for good."""
    printer = session.printer()
    with session.client() as client:
        client.apikeys_revoke(id)
    if printer.is_human:
        printer.line(f"revoked    {sanitize(id)}")
    else:
        printer.value({"id": id, "outcome": "revoked"})

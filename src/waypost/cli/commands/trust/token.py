"""`waypost token mint`."""

from __future__ import annotations

import secrets
import time

import click

from waypost.cli.options import example, parse_duration_option, scopes_option
from waypost.cli.output import without_none
from waypost.cli.session import Session, with_session
from waypost.errors import ConfigurationError
from waypost.model.times import to_rfc3339
from waypost.responses.service import MintedToken
from waypost.settings import TOKEN_KEY_FILE, Settings
from waypost.trust.jwt import load_token_key, mint


@click.group()
def token() -> None:
    """Mint access tokens."""


@token.command(
    "mint",
    epilog=example(
        "waypost token mint --sub alice --scope discover:read --scope discover:write --ttl 1h",
        'export WAYPOST_TOKEN="$(waypost token mint --sub ci --scope discover:write)"',
    ),
)
@click.option("--sub", required=True, metavar="NAME", help="The subject of the token.")
@scopes_option("A scope of the token. Repeatable.")
@click.option(
    "--ttl",
    type=parse_duration_option,
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="How long it is valid.",
)
@with_session
def mint_token(session: Session, sub: str, scopes: tuple[str, ...], ttl: int) -> None:
    """Mint a token and print it.

    It is signed with the key in the data folder of this machine. With --server, or without such a key, the service mints it,
    which needs admin.
    """
    printer = session.printer()
    settings = session.settings()
    settings.require_authentication()
    key = None if session.connection().named else _own_key(settings)
    if key is None:
        with session.client() as client:
            minted = client.mint_token(sub, scopes, ttl)
    else:
        minted = _mint_locally(key, settings, sub, scopes, ttl)
    if printer.is_human:
        printer.raw(minted.token.encode())
    else:
        printer.value(without_none({"token": minted.token, "expires_at": minted.expires_at}))


def _own_key(settings: Settings) -> bytes | None:
    path = settings.data / TOKEN_KEY_FILE
    try:
        return path.read_bytes()
    except (FileNotFoundError, PermissionError):
        return None
    except OSError as error:
        raise ConfigurationError(f"The key {path} cannot be read: {error.strerror}.", path="data") from None


def _mint_locally(key: bytes, settings: Settings, sub: str, scopes: tuple[str, ...], ttl: int) -> MintedToken:
    now = time.time()
    token = mint(
        load_token_key(key),
        issuer=settings.issuer,
        audience=settings.audience,
        subject=sub,
        scopes=scopes,
        ttl_seconds=ttl,
        now=now,
        token_id=secrets.token_urlsafe(12),
    )
    return MintedToken(token=token, expires_at=to_rfc3339(now + ttl))

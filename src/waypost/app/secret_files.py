"""The secrets in the data folder: keys and the admin token, made when they are not there. Their owner alone may read them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from waypost.errors import ConfigurationError
from waypost.private_files import make_whole
from waypost.settings import ADMIN_TOKEN_FILE
from waypost.trust import tokens

_TOKEN_CHARS = 32  # fewer could be guessed


def read_key(path: Path) -> Ed25519PrivateKey:
    pem = _read_or_make(path, lambda: tokens.new_key_pem(secrets.token_bytes(32)))
    try:
        return tokens.load_key(pem)
    except ValueError:
        raise ConfigurationError(
            f"{path.name} in the data folder is not an Ed25519 key.", path="data", hint="Remove it; a new one is made."
        ) from None


def read_admin_token(data: Path) -> str:
    made = _read_or_make(data / ADMIN_TOKEN_FILE, _new_admin_token)
    token = made.decode("ascii", "replace").strip()
    if len(token) < _TOKEN_CHARS:
        raise ConfigurationError(
            f"{ADMIN_TOKEN_FILE} in the data folder is too short to be safe.",
            path="data",
            hint="Remove it; a new one is made.",
        )
    return token


def _new_admin_token() -> bytes:
    return f"wp_{secrets.token_urlsafe(32)}\n".encode()


def _read_or_make(path: Path, make: Callable[[], bytes]) -> bytes:
    """A secret file, mode 0600. Made whole or not at all, and never over one that another process made meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        make_whole(path, make())
        return path.read_bytes()
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The data folder {path.parent} cannot be used: {error.strerror}.",
        path="data",
        hint="Name a folder that you may write to with --data or WAYPOST_DATA.",
    )

"""Private keys in files of this machine: made whole, for their owner alone, and never over one that is there."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from waypost import limits
from waypost.errors import ConfigurationError, InvalidRequest
from waypost.private_files import write_new
from waypost.trust.signing import SEED_BYTES, PrivateKey, load_private_key, new_key


def make_key(kind: str) -> PrivateKey:
    return new_key(kind, secrets.token_bytes(SEED_BYTES.get(kind, 0)))


def read_key(path: Path) -> PrivateKey:
    return load_private_key(read_text(path, hint="Make one with `waypost keys new`.").encode(), str(path))


def read_text(path: Path, hint: str | None = None) -> str:
    try:
        with path.open("rb") as file:
            return file.read(limits.DOCUMENT_BYTES).decode("utf-8")
    except OSError as error:
        raise InvalidRequest(f"The file {path} cannot be read: {error.strerror}.", path=str(path), hint=hint) from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"The file {path} is not a text.", path=str(path), hint="Name a PEM file.") from None


def keep_key(path: Path, key: PrivateKey) -> None:
    """Write a new file, mode 0600."""
    try:
        write_new(path, key.pem())
    except FileExistsError:
        raise ConfigurationError(
            f"{path} is there already.", path=str(path), hint="`waypost keys rotate` replaces it; --out names another."
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.", path=str(path)) from None


def replace_key(path: Path, key: PrivateKey, previous: PrivateKey) -> Path:
    """Put a new key in the place of the old one, which is kept beside it. Neither is ever missing."""
    kept = find_previous(path, previous)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    keep_key(fresh, key)
    try:
        kept.unlink(missing_ok=True)
        os.link(path, kept)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise ConfigurationError(f"{path} cannot be replaced: {error.strerror}.", path=str(path)) from None
    return kept


def find_previous(path: Path, previous: PrivateKey) -> Path:
    """Where a key that was replaced is kept: its name tells it."""
    return path.with_name(f"{path.stem}.{previous.public.key_id.removeprefix('sha256:')[:12]}{path.suffix}")

"""The secrets of the service itself, as files of the data folder: admin token, token key, identity key, cursor key.

    keys/token.pem                    the current key
    keys/retired/token.1795000000.pem a replaced one, accepted until this Unix time

A rotation first stores the old key among the retired ones and then replaces the current one, so that at no moment a key is
missing that something valid was made with. Every process notices a rotation at its next use of the key: it compares the stamps
of the files, which takes microseconds. So `waypost keys rotate --service` needs no signal and no restart, and a token of the
new key is accepted by a process that has not used the new key before.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.files import create_atomic, file_stamp, write_atomic
from waypost.model.times import to_rfc3339
from waypost.responses.service import ServiceKey
from waypost.settings import ADMIN_TOKEN_FILE, Settings
from waypost.trust import jwt
from waypost.trust.cursor_cipher import CURSOR_KEY_BYTES
from waypost.trust.keys.public_key import from_native

log = logging.getLogger("waypost")

TOKEN_KEY, IDENTITY_KEY, CURSOR_KEY = "token", "identity", "cursor"

_KEYS_FOLDER, _RETIRED_FOLDER = "keys", "keys/retired"
_RETIRED_NAME = re.compile(r"[a-z]+\.(\d{1,12})\.(?:pem|key)\Z")
_MIN_TOKEN_CHARS = 32  # a shorter one could be guessed
_TOKEN_PREFIX, _TOKEN_CHARS, _CHECK_CHARS = (
    "wp_",
    43,
    8,
)  # of a token that this service made: prefix, 32 random bytes, check
ADMIN_TOKEN = "admin-token"  # its name among the ids of the keys

K = TypeVar("K")
_Stamps = tuple[object, ...]


class RetiredKey(msgspec.Struct, Generic[K], frozen=True):
    key: K
    until: int  # Unix time


class KeyRing(Generic[K]):
    """The current key of one purpose and the retired ones. `parse` raises ValueError; `make` returns a new file."""

    def __init__(
        self, data: Path, name: str, *, suffix: str, parse: Callable[[bytes], K], make: Callable[[], bytes]
    ) -> None:
        self.name = name
        self.path = data / _KEYS_FOLDER / f"{name}.{suffix}"
        self._retired_folder = data / _RETIRED_FOLDER
        self._suffix = suffix
        self._parse = parse
        self._make = make
        self._stamps: _Stamps = ()
        self._current: K | None = None
        self._retired: tuple[RetiredKey[K], ...] = ()

    def current(self) -> K:
        """Made if there is no file."""
        self._refresh()
        if self._current is None:
            _read_or_make(self.path, self._make)
            self._refresh()
        if self._current is None:
            raise _unusable_folder(self.path, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
        return self._current

    def retired(self, now: float) -> tuple[RetiredKey[K], ...]:
        """Replaced keys that are still accepted, the newest first."""
        self._refresh()
        return tuple(each for each in self._retired if each.until > now)

    def accepted(self, now: float) -> tuple[K, ...]:
        return (self.current(), *(each.key for each in self.retired(now)))

    def version(self, now: float) -> object:
        """Differs as soon as another set of keys is accepted: after a rotation by any process, or the end of an overlap."""
        return len(self.retired(now)), self._stamps

    @property
    def changed_at(self) -> float:
        stamp = file_stamp(self.path)
        return 0.0 if stamp is None else stamp[0] / 1e9

    def adopt(self, content: bytes) -> None:
        """Store this as the current key, if there is none yet."""
        _read_or_make(self.path, lambda: content)

    def rotate(self, now: float, overlap_seconds: int) -> None:
        """Replace the current key. The old one is accepted for `overlap_seconds` more; 0 ends it, and all earlier ones, at
        once."""
        self.current()
        if overlap_seconds:
            write_atomic(self._find_free_path(int(now) + overlap_seconds), self.path.read_bytes())
        write_atomic(self.path, self._make())
        for path in self._retired_folder.glob(f"{self.name}.*.{self._suffix}"):
            if not overlap_seconds or _end_of(path) <= now:
                path.unlink(missing_ok=True)

    def _find_free_path(self, until: int) -> Path:
        """For a key that is retired. A rotation within the same second must not replace the key of the one before."""
        while (path := self._retired_folder / f"{self.name}.{until}.{self._suffix}").exists():
            until += 1
        return path

    def _refresh(self) -> None:
        """Read the files if they have changed. A file that cannot be read changes nothing: the service goes on with the keys
        that it has."""
        stamps = (file_stamp(self.path), file_stamp(self._retired_folder))
        if stamps == self._stamps or stamps[0] is None:
            return
        try:
            # The retired keys last: a rotation writes them first, so none can be missed.
            current = self._load(self.path.read_bytes())
            retired = tuple(
                RetiredKey(self._load(path.read_bytes()), _end_of(path))
                for path in sorted(
                    self._retired_folder.glob(f"{self.name}.*.{self._suffix}"), key=_end_of, reverse=True
                )
                if _RETIRED_NAME.match(path.name)
            )
        except (OSError, ConfigurationError) as error:
            if self._current is None:
                raise _unusable_folder(self.path, error) if isinstance(error, OSError) else error from None
            log.warning("the %s key is not reloaded: %s", self.name, error)
        else:
            if self._current is not None:
                log.info("the %s key was reloaded; %d earlier keys are still accepted", self.name, len(retired))
            self._current, self._retired = current, retired
        self._stamps = stamps

    def _load(self, content: bytes) -> K:
        try:
            return self._parse(content)
        except ValueError:
            raise ConfigurationError(
                f"{self.path.name} in the data folder is damaged, or another kind of key.",
                path="data",
                hint="Restore it from a backup (`waypost restore`). If there is none, remove the file: the next start makes a "
                "new key, and what the old one signed is no longer accepted.",
            ) from None


def _end_of(path: Path) -> int:
    found = _RETIRED_NAME.match(path.name)
    return int(found[1]) if found else 0


class ServiceKeys:
    """All keys of a service."""

    def __init__(self, data: Path, watch_keep_seconds: float = limits.WATCH_KEEP_SECONDS) -> None:
        self._admin_token = data / ADMIN_TOKEN_FILE
        make_ed25519 = lambda: jwt.new_token_key_pem(secrets.token_bytes(32))  # noqa: E731
        self.token = KeyRing(data, TOKEN_KEY, suffix="pem", parse=jwt.load_token_key, make=make_ed25519)
        self.identity = KeyRing(data, IDENTITY_KEY, suffix="pem", parse=jwt.load_token_key, make=make_ed25519)
        self.cursor = KeyRing(data, CURSOR_KEY, suffix="key", parse=parse_cursor_key, make=_new_cursor_key)
        self._overlaps = {
            TOKEN_KEY: limits.TOKEN_TTL_MAX_SECONDS,
            IDENTITY_KEY: limits.IDENTITY_OVERLAP_SECONDS,
            CURSOR_KEY: int(max(watch_keep_seconds, 2 * limits.CURSOR_SECONDS)),
        }

    def describe(self, now: float) -> tuple[ServiceKey, ...]:
        return tuple(self._describe(name, now) for name in self._overlaps)

    def rotate(self, name: str, now: float, overlap_seconds: int | None = None) -> ServiceKey:
        """Replace one key. By default the old one is accepted as long as anything made with it can be valid."""
        overlap = self._overlaps[name] if overlap_seconds is None else overlap_seconds
        self._ring(name).rotate(now, overlap)
        return self._describe(name, now)

    def key_ids(self) -> dict[str, str]:
        """The ids of the keys that exist; of the cursor key and the admin token, which are secret, a part of their hash."""
        rings = [ring for name in self._overlaps if (ring := self._ring(name)).path.exists()]
        ids = {ring.name: _id_of(ring.current()) for ring in rings}
        if self._admin_token.exists():
            ids[ADMIN_TOKEN] = admin_token_id(self._admin_token.read_bytes())
        return ids

    def _ring(self, name: str) -> KeyRing[Ed25519PrivateKey] | KeyRing[bytes]:
        return {TOKEN_KEY: self.token, IDENTITY_KEY: self.identity, CURSOR_KEY: self.cursor}[name]  # type: ignore[return-value]

    def _describe(self, name: str, now: float) -> ServiceKey:
        ring = self._ring(name)
        key, retired = ring.current(), ring.retired(now)
        return ServiceKey(
            name=name,
            key_id=None if isinstance(key, bytes) else from_native(key.public_key()).key_id,
            changed_at=to_rfc3339(ring.changed_at),
            accepted_until=to_rfc3339(retired[0].until) if retired else None,
            accepted_keys=1 + len(retired),
        )


def _id_of(key: Ed25519PrivateKey | bytes) -> str:
    if isinstance(key, bytes):
        return f"sha256:{hashlib.sha256(key).hexdigest()[:16]}"
    return from_native(key.public_key()).key_id


SERVICE_KEY_NAMES = (TOKEN_KEY, IDENTITY_KEY, CURSOR_KEY)


def service_keys_of(settings: Settings) -> ServiceKeys:
    return ServiceKeys(settings.data, settings.watch_keep_seconds)


# --- Contents of the files ------------------------------------------------------------------------


def parse_cursor_key(content: bytes) -> bytes:
    """The key and a part of its hash, in hexadecimal: any bytes are a valid key, so damage would go unnoticed."""
    key = bytes.fromhex(content.decode("ascii").partition(" ")[0])
    if len(key) != CURSOR_KEY_BYTES or content != format_cursor_key(key):
        raise ValueError("this is not a cursor key with its hash")
    return key


def format_cursor_key(key: bytes) -> bytes:
    return f"{key.hex()} {hashlib.sha256(key).hexdigest()[:16]}\n".encode()


def _new_cursor_key() -> bytes:
    return format_cursor_key(secrets.token_bytes(CURSOR_KEY_BYTES))


def read_admin_token(data: Path) -> str:
    return parse_admin_token(_read_or_make(data / ADMIN_TOKEN_FILE, _new_admin_token))


def parse_admin_token(content: bytes) -> str:
    """The token of the file, which may be one that an operator chose. One that this service made ends in a part of its hash:
    any text is a valid token, so damage would go unnoticed."""
    token = content.decode("ascii", "replace").strip()
    if len(token) < _MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable() or not _is_intact(token):
        raise ConfigurationError(
            f"{ADMIN_TOKEN_FILE} in the data folder is too short to be safe, or damaged.",
            path="data",
            hint="Remove the file; the next start makes a new token.",
        )
    return token


def _is_intact(token: str) -> bool:
    """Two marks tell a token of ours from others, so that damage of one of them is noticed, too."""
    start = len(_TOKEN_PREFIX) + _TOKEN_CHARS
    is_ours = len(token) == start + 1 + _CHECK_CHARS and (token.startswith(_TOKEN_PREFIX) or token[start] == "_")
    return not is_ours or token == _with_check(token[:start])


def has_check(content: bytes) -> bool:
    """Whether an admin token has the part that detects damage."""
    token = content.decode("ascii", "replace").strip()
    return token == _with_check(token[: len(_TOKEN_PREFIX) + _TOKEN_CHARS])


def admin_token_id(content: bytes) -> str:
    return _id_of(content.strip())


def _with_check(token: str) -> str:
    return f"{token}_{hashlib.sha256(token.encode()).hexdigest()[:_CHECK_CHARS]}"


def _new_admin_token() -> bytes:
    return f"{_with_check(_TOKEN_PREFIX + secrets.token_urlsafe(32))}\n".encode()


def _read_or_make(path: Path, make: Callable[[], bytes]) -> bytes:
    """A secret file with mode 0600. It is created atomically and never replaces one that another process made meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unusable_folder(path, error) from None
    try:
        create_atomic(path, make())
        return path.read_bytes()
    except OSError as error:
        raise _unusable_folder(path, error) from None


def _unusable_folder(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The data folder {path.parent} cannot be used: {error.strerror}.",
        path="data",
        hint="Name a folder that you may write to with --data or WAYPOST_DATA.",
    )

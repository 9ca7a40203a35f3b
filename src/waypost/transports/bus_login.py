"""Who a client of the bus is, and whom it trusts: files that are read at each connection, so that they may be replaced."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import msgspec

from waypost.errors import ConfigurationError
from waypost.settings import Settings
from waypost.trust.nkeys import parse_credentials, parse_seed


class BusLogin(msgspec.Struct, frozen=True, kw_only=True):
    """Files. User and password stand in the address of the bus, if anywhere."""

    creds: Path | None = None  # a user's JWT and its seed
    nkey: Path | None = None  # the seed of a user's key
    token: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None

    def options(self) -> tuple[dict[str, Any], str | None]:
        """For a client of NATS, and the public key that it shows where no JWT does."""
        options: dict[str, Any] = {}
        public = None
        if self.creds is not None:
            told, key = parse_credentials(_text(self.creds, "bus_creds"))
            options |= {"user_jwt_cb": lambda: bytearray(told.encode()), "signature_cb": key.sign}
        elif self.nkey is not None:
            key = parse_seed(_text(self.nkey, "bus_nkey"))
            options["signature_cb"], public = key.sign, key.public
        if self.token is not None:
            options["token"] = _text(self.token, "bus_token").strip()
        if self.ca is not None or self.cert is not None:
            options["tls"] = self._context()
        return options, public

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.cert_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"The certificates for the bus cannot be used: {error.strerror or error}.",
                path="bus_ca",
                hint="`bus_ca`, `bus_cert` and `bus_cert_key` name PEM files.",
            ) from None
        return context


def login_of(settings: Settings) -> BusLogin:
    return BusLogin(
        creds=settings.bus_creds,
        nkey=settings.bus_nkey,
        token=settings.bus_token,
        ca=settings.bus_ca,
        cert=settings.bus_cert,
        cert_key=settings.bus_cert_key,
    )


def _text(path: Path, setting: str) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(
            f"{path} cannot be read: {reason}.", path=setting, hint=f"Name a file that this user may read as {setting}."
        ) from None

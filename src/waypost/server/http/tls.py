"""TLS of the listener: version 1.3 and nothing older; client certificates may be shown, and must then lead to an authority.

Who a client certificate stands for is not decided here.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

from waypost.errors import ConfigurationError
from waypost.server.watched_file import file_stamp

log = logging.getLogger("waypost.server")

TLS_1_3 = 0x0304  # as the ASGI extension names it


class TlsContext:
    def __init__(self, certificate: Path, key: Path | None = None, client_ca: Path | None = None) -> None:
        self._certificate = certificate
        self._key = key
        self._stamps = self._look()
        self.context = self._new_context(client_ca)

    def _new_context(self, client_ca: Path | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["http/1.1"])
        self._load_chain(context)
        if client_ca is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.num_tickets = 0  # a session that goes on would not ask for the certificate again
            try:
                context.load_verify_locations(cafile=client_ca)
            except (OSError, ssl.SSLError) as error:
                raise _unusable_file("client_ca", client_ca, error) from None
        return context

    def _load_chain(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise _unusable_file("tls_cert", self._certificate, error) from None

    def refresh(self) -> bool:
        """Take a new certificate for connections from now on; True when there was one. A bad one changes nothing."""
        stamps = self._look()
        if stamps == self._stamps or None in stamps:
            return False
        self._stamps = stamps
        try:
            self._load_chain(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # half a change must not touch what works
            self._load_chain(self.context)
        except ConfigurationError as error:
            log.warning("the certificate is kept as it was: %s", error)
            return False
        log.info("a new certificate was loaded")
        return True

    def _look(self) -> tuple[Any, ...]:
        return tuple(file_stamp(path) for path in (self._certificate, self._key) if path is not None)


def tls_extension(tls: ssl.SSLObject) -> dict[str, Any]:
    """What the ASGI extension `tls` says of a connection."""
    shown = tls.getpeercert(binary_form=True)
    return {
        "server_cert": None,
        "client_cert_chain": () if shown is None else (ssl.DER_cert_to_PEM_cert(shown),),
        "client_cert_name": None,
        "client_cert_error": None,
        "tls_version": TLS_1_3,
        "cipher_suite": None,
    }


def _no_password() -> str:
    raise ValueError("the key is locked by a password")


def _unusable_file(setting: str, path: Path, error: Exception) -> ConfigurationError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ConfigurationError(
        f"The file of {setting} cannot be used ({path.name}): {why}.",
        path=setting,
        hint="It is a PEM file; the key without a password, in the same file or in tls_key.",
    )

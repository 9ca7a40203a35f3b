"""TLS of the listening sockets: version 1.3 only. Client certificates are optional and verified against `client_ca`.

`server/auth/certificates.py` maps a client certificate to a principal.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

from waypost.errors import ConfigurationError
from waypost.files import file_stamp

log = logging.getLogger("waypost.server")

_TLS_1_3 = 0x0304  # the protocol version number in the ASGI extension


class TlsContext:
    def __init__(self, certificate: Path, key: Path | None = None, client_ca: Path | None = None) -> None:
        self._certificate = certificate
        self._key = key
        self._stamps = self._read_stamps()
        self.context = self._make_context(client_ca)

    def _make_context(self, client_ca: Path | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["http/1.1"])
        self._load_chain(context)
        if client_ca is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.num_tickets = 0  # a resumed session would skip the client certificate
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
        """Load a changed certificate for new connections; True if there was one. An invalid one changes nothing."""
        stamps = self._read_stamps()
        if stamps == self._stamps or None in stamps:
            return False
        self._stamps = stamps
        try:
            self._load_chain(
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            )  # a certificate without its key must not reach the context in use
            self._load_chain(self.context)
        except ConfigurationError as error:
            log.warning("the TLS certificate is not reloaded: %s", error)
            return False
        log.info("the TLS certificate was reloaded")
        return True

    def _read_stamps(self) -> tuple[Any, ...]:
        return tuple(file_stamp(path) for path in (self._certificate, self._key) if path is not None)


def tls_extension(tls: ssl.SSLObject) -> dict[str, Any]:
    """The ASGI extension `tls` of a connection."""
    certificate = tls.getpeercert(binary_form=True)
    return {
        "server_cert": None,
        "client_cert_chain": () if certificate is None else (ssl.DER_cert_to_PEM_cert(certificate),),
        "client_cert_name": None,
        "client_cert_error": None,
        "tls_version": _TLS_1_3,
        "cipher_suite": None,
    }


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _unusable_file(setting: str, path: Path, error: Exception) -> ConfigurationError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ConfigurationError(
        f"The {setting} file cannot be used ({path.name}): {reason}.",
        path=setting,
        hint="Use a PEM file; the key must be unencrypted, in the same file or in tls_key.",
    )

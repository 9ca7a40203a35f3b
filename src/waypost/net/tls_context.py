"""TLS context for outgoing connections: certifi's authorities, this machine's, and those that the settings name."""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi

from waypost.errors import ConfigurationError


def client_tls_context(ca_file: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certifi.where())
    context.load_default_certs()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:
            raise ConfigurationError(
                f"Cannot load certificate authorities from {ca_file}: {error.strerror or 'not PEM'}.",
                path="fetch_ca",
                hint="Name a PEM file.",
            ) from None
    return context

"""How a client knows the service, and the service the client: certificates of the connection."""

from __future__ import annotations

import ssl

import certifi

from waypost.errors import ConfigurationError
from waypost.settings import Connection


def tls_context(address: Connection) -> ssl.SSLContext | bool:
    """The authorities and the certificate that were named; True for the usual ones. Over plain HTTP, which no client of ours
    leaves, none: to read the usual ones would take longer than most commands do."""
    if address.ca is None and address.cert is None:
        return address.base_url.startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context = ssl.create_default_context(cafile=str(address.ca or certifi.where()))
        if address.cert is not None:
            context.load_cert_chain(address.cert, address.cert_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"The certificates cannot be used: {error.strerror or error}.",
            path="ca",
            hint="`ca`, `cert` and `cert_key` name PEM files.",
        ) from None
    return context

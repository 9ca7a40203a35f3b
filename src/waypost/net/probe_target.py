"""What a health check of an endpoint connects to. Registrations are checked with it too, where nothing may ever be fetched."""

from __future__ import annotations

from typing import Final

from waypost.errors import InvalidParameter
from waypost.model.health import scheme_of
from waypost.net.address_policy import AddressPolicy
from waypost.net.url import FetchTarget, parse_url

_PROBE_SCHEMES: Final = {"ws": "http", "wss": "https", "grpc": "http", "grpcs": "http", "tcp": "http"}


def probe_target(endpoint: str) -> FetchTarget:
    """The endpoint as an HTTP URL: WebSockets are probed over HTTP; of other schemes, only host and port count."""
    scheme = scheme_of(endpoint)
    return parse_url(_PROBE_SCHEMES.get(scheme, scheme) + endpoint[len(scheme) :])


def check_endpoint(endpoint: str, policy: AddressPolicy, own_origin: str | None) -> None:
    """Raises AddressDenied if the endpoint is an IP address that may not be connected to."""
    try:
        target = probe_target(endpoint)
    except InvalidParameter:
        return
    if target.address is not None and target.origin != own_origin:
        policy.check(target.address, target.port)

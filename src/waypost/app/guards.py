"""Who stands at the door: who calls, from where, by which name, and how often."""

from __future__ import annotations

import msgspec

from waypost.app.core import Core
from waypost.app.ground import Ground
from waypost.app.ways_out import WaysOut
from waypost.errors import FetchFailed
from waypost.net.outgoing import Outgoing
from waypost.server.auth import Authenticator
from waypost.server.credentials import make_authenticator, make_issuers, make_rates
from waypost.server.hosts import Hosts
from waypost.server.issuers import FetchKeys, Issuers
from waypost.server.origin import Origin
from waypost.server.rates import Rates
from waypost.trust import tokens


class Guards(msgspec.Struct, frozen=True, kw_only=True):
    authenticator: Authenticator
    issuers: Issuers | None  # outside ones
    rates: Rates
    origin: Origin  # the caller's address, behind proxies
    hosts: Hosts  # names by which a WebSocket may call


def make_guards(ground: Ground, core: Core, ways_out: WaysOut) -> Guards:
    settings, clock = ground.settings, ground.clock
    issuers = make_issuers(settings, _key_fetcher(ways_out.outgoing), clock)
    authenticator = make_authenticator(
        settings,
        tokens.Verifier(ground.token_key.public_key(), issuer=settings.issuer, audience=settings.audience),
        ground.admin_token,
        clock,
        issuers=issuers,
        is_revoked=core.registry.trust.is_revoked,
    )
    return Guards(
        authenticator=authenticator,
        issuers=issuers,
        rates=make_rates(settings, clock),
        origin=Origin(settings.trusted_proxies),
        hosts=Hosts(ground.base_url, settings.host, settings.allowed_hosts, settings.allowed_origins),
    )


def _key_fetcher(outgoing: Outgoing) -> FetchKeys:
    """How the keys of an outside issuer are fetched: as everything else is."""

    async def fetch(url: str) -> bytes:
        found = await outgoing.fetch(url, "jwks")
        if not found.is_success:
            raise FetchFailed(f"The issuer answered {found.status}.", path="jwks", hint="See the log of the issuer.")
        return found.body

    return fetch

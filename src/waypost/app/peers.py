"""Peers: the feed of this service, and the registries that it follows and asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from waypost.app.core import AppContext, Core, make_chore_check
from waypost.app.outbound import Outbound
from waypost.domains.organisation_documents import OrganisationDocumentReader
from waypost.errors import ConfigurationError, WaypostError
from waypost.federation.feed import Feed
from waypost.federation.kinds.domain import OrganisationDocument, OrganisationDocuments
from waypost.federation.kinds.table import DomainLookup
from waypost.federation.peers import PeerRequest
from waypost.federation.service import PeerService
from waypost.model.federation import PeerSetting
from waypost.registry.ports import OutboundSender
from waypost.responses.federation import PEER_STATES
from waypost.server.http.metrics import Metrics
from waypost.trust.keys.private_key import PrivateKey


def make_peers(
    context: AppContext,
    core: Core,
    outbound: Outbound,
    sender: OutboundSender,
    get_key: Callable[[], PrivateKey],
    get_replaced: Callable[[], Sequence[PrivateKey]],
) -> PeerService:
    """`get_key` returns the identity key of the service, which signs its feed; `get_replaced` those before it."""
    url = context.base_url.rstrip("/")
    peers = PeerService(
        core.registry,
        sender,
        lambda may_reexport: Feed(core.registry, url, get_key, may_reexport, get_replaced),
        _make_lookup(outbound),
        make_chore_check(context, core.store),
        [_to_request(setting) for setting in context.settings.peers],
    )
    _add_gauges(core.metrics, peers)
    return peers


def _to_request(setting: PeerSetting) -> PeerRequest:
    """Raises ConfigurationError for what can be told without contacting the peer."""
    members = {name: getattr(setting, name) for name in PeerRequest.__struct_fields__ if hasattr(setting, name)}
    given = {name: value for name, value in members.items() if value is not None}
    try:
        if setting.token_file is not None:
            given["token"] = Path(setting.token_file).read_text("ascii").strip()
        request = PeerRequest(**given)
        request.check()
    except OSError as error:
        raise ConfigurationError(f"The token of a peer cannot be read: {error}", path="peers") from None
    except WaypostError as error:
        raise ConfigurationError(f"{setting.url}: {error.message}", path="peers", hint=error.hint) from None
    return request


def _make_lookup(outbound: Outbound) -> DomainLookup:
    reader = OrganisationDocumentReader(outbound.organisations, outbound.resolver)

    async def find_catalogs(domain: str) -> Sequence[str]:
        found = await reader.read(domain)
        return [found.catalog_url] if found.catalog_url else ()

    async def read_organisation(domain: str) -> OrganisationDocuments:
        found = await reader.read(domain)
        documents = [OrganisationDocument(dialect=None, document=body, url=url) for body, url in found.documents]
        return OrganisationDocuments(documents=documents, unresolved=found.unresolved, problem=found.reason)

    return DomainLookup(find_catalogs=find_catalogs, read_organisation=read_organisation)


def _add_gauges(metrics: Metrics, peers: PeerService) -> None:
    gauge, labelled = metrics.add_gauge, metrics.add_labelled_gauge
    gauge("peers", "Registries that this service follows or asks.", lambda: len(peers.list()))
    gauge("peers_failing", "Peers whose last pull failed.", lambda: sum(p.state == "failing" for p in peers.list()))
    labelled(
        "peer_state",
        "1 for the state that a peer is in.",
        ("peer", "state"),
        lambda: [((p.name, state), float(p.state == state)) for p in peers.list() for state in PEER_STATES],
    )
    labelled(
        "peer_records", "Agents of a peer.", ("peer",), lambda: [((p.name,), float(p.records)) for p in peers.list()]
    )
    labelled(
        "peer_parked",
        "Records of a peer that were not taken.",
        ("peer",),
        lambda: [((p.name,), float(p.parked)) for p in peers.list()],
    )
    labelled(
        "peer_lag_seconds",
        "Time since everything of a peer was known here.",
        ("peer",),
        lambda: [((p.name,), p.lag_seconds) for p in peers.list() if p.lag_seconds is not None],
    )
    labelled(
        "peer_breaker_open",
        "1 while a peer is not asked because it failed.",
        ("peer",),
        lambda: [((p.name,), float(p.breaker == "open")) for p in peers.list() if p.ask],
    )

"""The service as an agent, and the agents whose documents it writes for their domains."""

from __future__ import annotations

import msgspec

from waypost.app.core import Core
from waypost.app.ground import Ground
from waypost.model.registration import Registration
from waypost.server.capability_versions import CapabilityVersions
from waypost.server.hosted_keys import HostedKeys
from waypost.server.hosting import Hosting
from waypost.server.identity import service_record, service_registration


class Hosted(msgspec.Struct, frozen=True, kw_only=True):
    itself: Registration  # the service's own
    keys: HostedKeys
    hosting: Hosting


def make_hosted(ground: Ground, core: Core) -> Hosted:
    data, started_at = ground.settings.data, ground.started_at
    record = service_record(ground.base_url, ground.host, ground.identity_key.public_key(), started_at)
    itself = service_registration(record, started_at)
    keys = HostedKeys(data, ground.identity_key, ground.host)
    return Hosted(itself=itself, keys=keys, hosting=Hosting(core.renderer, keys, itself, CapabilityVersions(data)))

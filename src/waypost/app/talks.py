"""What comes after discovery: whose key is whose, conversations, tasks, swarms, invitations."""

from __future__ import annotations

import msgspec

from waypost.app.core import Core
from waypost.app.faces import Faces
from waypost.app.ground import Ground
from waypost.app.guards import Guards
from waypost.app.hosted import Hosted
from waypost.app.ways_out import WaysOut
from waypost.meeting.peers import PeerKeysInOrder, PinnedKeys, RegisteredKeys
from waypost.server.agp_agents import OwnAgents
from waypost.server.agp_socket import Conversations
from waypost.server.auth import ADMIN
from waypost.server.domain_keys import DomainKeys, HostedPeerKeys
from waypost.server.domain_tasks import DomainTasks
from waypost.server.meeting import Meeting


class Talks(msgspec.Struct, frozen=True, kw_only=True):
    conversations: Conversations
    meeting: Meeting


def make_talks(ground: Ground, core: Core, ways_out: WaysOut, hosted: Hosted, guards: Guards, faces: Faces) -> Talks:
    registry, keeper, keys = core.registry, core.keeper, hosted.keys
    peers = _make_peers(ground, core, ways_out)
    agents = OwnAgents(registry, keeper, keys, peers, hosted.itself.record.id, faces.profile.found)
    conversations = Conversations(agents, core.metrics, registry.clock.now)
    meeting = Meeting(
        registry,
        keeper,
        ways_out.outgoing,
        keys,
        core.renderer,
        hosted.itself,
        peers,
        faces.profile,
        hosted.hosting,
        DomainTasks(ways_out.resolver),
    )
    peers.add(HostedPeerKeys(registry, keys))
    peers.add(meeting.invitations)
    meeting.speak_through(conversations)
    meeting.guard(guards.authenticator, faces.documents)
    faces.operator.meeting = meeting.figures
    return Talks(conversations=conversations, meeting=meeting)


def _make_peers(ground: Ground, core: Core, ways_out: WaysOut) -> PeerKeysInOrder:
    """Who is asked for the key of an agent; the first who knows it is believed."""
    own_dns = ground.settings.resolver != "system"
    return PeerKeysInOrder(
        (
            DomainKeys(ways_out.resolver, everywhere=own_dns),
            PinnedKeys(core.registry),
            RegisteredKeys(core.registry, ADMIN),
        )
    )

"""What comes after discovery, put together: tasks, swarms and invitations with what they need of the service.

One process of a service does the work behind tasks; the others only read, and take in what is forwarded.
"""

from __future__ import annotations

from waypost.meeting.deliveries import DELIVERY, Deliveries
from waypost.meeting.invitations import INVITATION, Invitations
from waypost.meeting.peers import PeerKeys
from waypost.meeting.running import Runner
from waypost.meeting.sending import Courier
from waypost.meeting.signatures import SCHEME, Signatures
from waypost.meeting.swarms import SWARM, Swarms
from waypost.meeting.tasks import OPEN, Tasks
from waypost.model.json import JsonObject, dump_json
from waypost.model.registration import Registration
from waypost.registry.engine import Registry
from waypost.registry.fetching import Sender
from waypost.registry.keeping import Keeper
from waypost.server.agp_socket import Conversations
from waypost.server.auth import Authenticator
from waypost.server.documents import DocumentFace
from waypost.server.domain_tasks import DomainTasks
from waypost.server.hosted_keys import HostedKeys
from waypost.server.hosting import Hosting
from waypost.server.invitations import InvitationFace
from waypost.server.own_tasks import OwnTasks
from waypost.server.profile import ProfileFace
from waypost.server.rendering import Renderer
from waypost.server.routes import Route
from waypost.server.senders import Senders
from waypost.server.swarm import SwarmFace
from waypost.server.tasks import TaskFace
from waypost.wire.agp import JSON, Content
from waypost.wire.agp_signing import VerifyingKey

_WEBHOOK = "/agent/webhook"
_FIGURES = {
    "tasks_open": (OPEN, "Tasks that are not done."),
    "deliveries_waiting": (DELIVERY, "Messages of swarms that are not brought yet."),
    "swarms": (SWARM, "Swarms with members."),
    "invitations": (INVITATION, "Invitations that are open, or were in the last week."),
}


class Meeting:
    def __init__(
        self,
        registry: Registry,
        keeper: Keeper,
        outgoing: Sender,
        keys: HostedKeys,
        renderer: Renderer,
        service: Registration,
        peers: PeerKeys,
        profile: ProfileFace,
        hosting: Hosting,
        elsewhere: DomainTasks,
    ) -> None:
        now = registry.clock.now
        self._keeper, self._now = keeper, now
        self._conversations: Conversations | None = None

        async def key_of(agent: str) -> VerifyingKey | None:
            found = await peers.key_of(agent)
            return None if found is None else found.key

        signatures = Signatures(key_of, keeper, now)
        self.senders = Senders(registry, renderer, service, signatures, lambda domain: keys.key_of(domain) is not None)
        self.tasks = Tasks(keeper, now)

        def webhook(agent: str) -> str | None:
            return _webhook(hosting.origin(agent.removeprefix(SCHEME)))

        self.courier = Courier(outgoing, keys.key_of, service.record.id, webhook, now, elsewhere.tasks_url)
        own = OwnTasks(profile)
        self.deliveries = Deliveries(keeper, self.courier, now)
        self.runner = Runner(self.tasks, own.execute, self.courier, self.deliveries, now=now)
        self.swarms = Swarms(keeper, now, self.tasks.news.set)
        self.invitations = Invitations(keeper, now)
        self.inviting = InvitationFace(
            self.invitations, registry, hosting, keys, outgoing, renderer.base_url.rstrip("/")
        )
        self._faces = (
            TaskFace(self.tasks, self.senders, own, signatures, outgoing, hosting.origin),
            SwarmFace(self.swarms, self.senders, outgoing),
            self.inviting,
        )

    def routes(self) -> list[Route]:
        return [route for face in self._faces for route in face.routes()]

    def guard(self, authenticator: Authenticator, documents: DocumentFace) -> None:
        """Let invitations and tokens open the documents of private agents."""
        self.inviting.authenticator = authenticator
        documents.invited = self.inviting.invited

    def speak_through(self, conversations: Conversations) -> None:
        """Members of swarms that hold a line here are told on it."""
        self._conversations = conversations
        conversations.invitations = self.invitations

        async def speak(agent: str, message: JsonObject) -> None:
            await conversations.agents.tell(agent, Content(text=dump_json(message).decode(), type=JSON))

        self.swarms.speak = speak

    async def figures(self) -> dict[str, tuple[str, float]]:
        """For operators."""
        now = self._now()
        shown: dict[str, tuple[str, float]] = {
            name: (text, await self._keeper.count(kind, now)) for name, (kind, text) in _FIGURES.items()
        }
        if self._conversations is not None:
            shown["conversations"] = ("Open connections of AGP.", self._conversations.count)
            shown["held_lines"] = ("Agents that hold a line here.", len(self._conversations.agents.lines))
        return shown

    def start(self) -> None:
        """In the process that writes."""
        self.runner.start()

    async def stop(self) -> None:
        await self.runner.stop()


def _webhook(origin: str) -> str | None:
    """Where results can be brought to; nobody brings any to a service that has no TLS (P-5)."""
    return origin + _WEBHOOK if origin.startswith("https:") else None

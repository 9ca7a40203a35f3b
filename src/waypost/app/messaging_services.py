"""What comes after discovery, put together: tasks, swarms and invitations with what they need of the service.

One process of a service does the work behind tasks; the others only read, and take in what is forwarded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from waypost.messaging.callbacks import DELIVERY_KIND, CallbackQueue, RemoteAgentClient
from waypost.messaging.invitations import INVITATION_KIND, InvitationStore
from waypost.messaging.peers import PeerKeySource
from waypost.messaging.request_signatures import AGENT_URI_PREFIX, RequestVerifier
from waypost.messaging.swarms import SWARM_KIND, SwarmStore
from waypost.messaging.task_runner import TaskRunner
from waypost.messaging.tasks import OPEN_TASK_KIND, TaskStore
from waypost.model.json import JsonObject, dump_json
from waypost.model.principal import Principal
from waypost.model.registration import Registration
from waypost.protocols.adp.agp.messages import JSON, MessageContent, VerifyingKey
from waypost.registry.ports import KeyValueStore, OutboundSender
from waypost.registry.registry import Registry
from waypost.server.api.adp.agp.websocket import AgpWebSocketApp
from waypost.server.api.adp.domain_lookup import DomainTaskEndpoints
from waypost.server.api.adp.invitations import InvitationApi
from waypost.server.api.adp.requesters import Requesters
from waypost.server.api.adp.swarms import SwarmApi
from waypost.server.api.adp.tasks import ServiceTasks, TaskApi
from waypost.server.auth.authenticator import Authenticator
from waypost.server.hosted_agents.documents import HostedDocuments
from waypost.server.hosted_agents.keys import HostedKeys
from waypost.server.http.routing import Route
from waypost.server.renderer import Renderer
from waypost.server.well_known import WellKnownApi

_WEBHOOK = "/agent/webhook"
_GAUGES = {
    "tasks_open": (OPEN_TASK_KIND, "Tasks that are not done."),
    "deliveries_waiting": (DELIVERY_KIND, "Messages of swarms that are not brought yet."),
    "swarms": (SWARM_KIND, "Swarms with members."),
    "invitations": (INVITATION_KIND, "Invitations that are open, or were in the last week."),
}


class MessagingServices:
    def __init__(
        self,
        registry: Registry,
        keeper: KeyValueStore,
        outgoing: OutboundSender,
        keys: HostedKeys,
        renderer: Renderer,
        service: Registration,
        peers: PeerKeySource,
        find: Callable[[JsonObject, Principal, str], Awaitable[bytes]],
        hosting: HostedDocuments,
        elsewhere: DomainTaskEndpoints,
    ) -> None:
        now = registry.clock.now
        self._keeper, self._now = keeper, now
        self._conversations: AgpWebSocketApp | None = None

        async def key_of(agent: str) -> VerifyingKey | None:
            found = await peers.key_of(agent)
            return None if found is None else found.key

        signatures = RequestVerifier(key_of, keeper, now)
        self.senders = Requesters(
            registry, renderer, service, signatures, lambda domain: keys.key_of(domain) is not None
        )
        self.tasks = TaskStore(keeper, now)

        def webhook(agent: str) -> str | None:
            return _webhook_url(hosting.origin(agent.removeprefix(AGENT_URI_PREFIX)))

        self.courier = RemoteAgentClient(outgoing, keys.key_of, service.record.id, webhook, now, elsewhere.tasks_url)
        own = ServiceTasks(find)
        self.deliveries = CallbackQueue(keeper, self.courier, now)
        self.runner = TaskRunner(self.tasks, own.execute, self.courier, self.deliveries, now=now)
        self.swarms = SwarmStore(keeper, now, self.tasks.news.set)
        self.invitations = InvitationStore(keeper, now)
        self.inviting = InvitationApi(
            self.invitations, registry, hosting, keys, outgoing, renderer.base_url.rstrip("/")
        )
        self._faces = (
            TaskApi(self.tasks, self.senders, own, signatures, outgoing, hosting.origin),
            SwarmApi(self.swarms, self.senders, outgoing),
            self.inviting,
        )

    def routes(self) -> list[Route]:
        return [route for face in self._faces for route in face.routes()]

    def guard(self, authenticator: Authenticator, documents: WellKnownApi) -> None:
        """Let invitations and tokens open the documents of private agents."""
        self.inviting.authenticator = authenticator
        documents.invited = self.inviting.invited

    def connect_agp(self, conversations: AgpWebSocketApp) -> None:
        """Members of swarms that hold a line here are told on it."""
        self._conversations = conversations
        conversations.invitations = self.invitations

        async def speak(agent: str, message: JsonObject) -> None:
            await conversations.agents.tell(agent, MessageContent(text=dump_json(message).decode(), type=JSON))

        self.swarms.speak = speak

    async def figures(self) -> dict[str, tuple[str, float]]:
        """For operators."""
        now = self._now()
        shown: dict[str, tuple[str, float]] = {
            name: (text, await self._keeper.count(kind, now)) for name, (kind, text) in _GAUGES.items()
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


def _webhook_url(origin: str) -> str | None:
    """Where results can be brought to; nobody brings any to a service that has no TLS (P-5)."""
    return origin + _WEBHOOK if origin.startswith("https:") else None

"""Messaging: AGP agents, tasks, swarms and invitations, and the sources of peer keys.

The leader runs tasks and deliveries; followers only read, and forward writes.
"""

from __future__ import annotations

from waypost.app.apis import Apis, HostedAgents
from waypost.app.core import AppContext, Core, make_chore_check
from waypost.app.outbound import Outbound
from waypost.messaging.invitations import INVITATION_KIND
from waypost.messaging.peers import PeerKeyChain, PinnedKeys, RegisteredKeys
from waypost.messaging.request_signatures import AGENT_URI_PREFIX, RequestVerifier
from waypost.messaging.swarms import SWARM_KIND, SwarmStore
from waypost.messaging.task_runner import DELIVERY_KIND, CallbackQueue, RemoteAgentClient, TaskRunner
from waypost.messaging.tasks import OPEN_TASK_KIND, TaskStore
from waypost.model.json import dump_json
from waypost.protocols.adp.agp.messages import JSON, MessageContent, VerifyingKey
from waypost.responses.messaging import SwarmMessage
from waypost.server.api.adp.agp.agents import AgpAgents
from waypost.server.api.adp.agp.websocket import CHAT_ROUTE
from waypost.server.api.adp.requesters import DomainKeys, DomainTaskEndpoints, HostedPeerKeys, Requesters
from waypost.server.api.adp.swarms import SwarmApi
from waypost.server.api.adp.tasks import ServiceTasks, TaskApi
from waypost.server.auth.authenticator import ADMIN
from waypost.server.http.routing import Route

_POLL_SECONDS = 0.5  # a task for a worker that waits here may be accepted by another node
_WEBHOOK_PATH = "/agent/webhook"
_GAUGES = {
    "tasks_open": (OPEN_TASK_KIND, "Tasks that are not done."),
    "deliveries_waiting": (DELIVERY_KIND, "Messages of swarms that are not delivered yet."),
    "swarms": (SWARM_KIND, "Swarms with members."),
    "invitations": (INVITATION_KIND, "Invitations that are open, or were in the last week."),
}


class Messaging:
    def __init__(self, context: AppContext, core: Core, outbound: Outbound, hosted: HostedAgents, apis: Apis) -> None:
        registry, store, now = core.registry, core.key_value_store, context.clock.now
        own_id = hosted.service.registration.id
        peers = PeerKeyChain(
            (
                DomainKeys(outbound.resolver, everywhere=context.settings.resolver != "system"),
                PinnedKeys(registry),
                RegisteredKeys(registry, ADMIN),
                HostedPeerKeys(registry, hosted.keys),
                apis.invitation_store,
            )
        )

        async def key_of(agent: str) -> VerifyingKey | None:
            found = await peers.key_of(agent)
            return None if found is None else found.key

        def webhook(agent: str) -> str | None:
            """Where results are delivered to; without TLS there is no callback (P-5)."""
            origin = hosted.documents.origin(agent.removeprefix(AGENT_URI_PREFIX))
            return origin + _WEBHOOK_PATH if origin.startswith("https:") else None

        async def send_to_member(agent: str, message: SwarmMessage) -> None:
            await self.agents.tell(agent, MessageContent(text=dump_json(message).decode(), type=JSON))

        self._store = store
        self._now = now
        self.agents = AgpAgents(registry, store, hosted.keys, peers, own_id, apis.profile.find, context.node_url)
        self.tasks = TaskStore(store, now, poll_seconds=_POLL_SECONDS if context.settings.is_cluster else None)
        self.swarms = SwarmStore(store, now, self.tasks.wake_up.set, send_to_member)
        signatures = RequestVerifier(key_of, store, now, context.clock.latest)
        requesters = Requesters(
            registry, core.renderer, hosted.service, signatures, lambda domain: hosted.keys.key_of(domain) is not None
        )
        elsewhere = DomainTaskEndpoints(outbound.resolver)
        remote = RemoteAgentClient(outbound.client, hosted.keys.key_of, own_id, webhook, now, elsewhere.tasks_url)
        service_tasks = ServiceTasks(apis.profile.find)
        deliveries = CallbackQueue(store, remote, now)
        self.runner = TaskRunner(
            self.tasks, service_tasks.execute, remote, deliveries, now=now, may_do=make_chore_check(context, core.store)
        )
        self._apis = (
            TaskApi(self.tasks, requesters, service_tasks, signatures, outbound.client, hosted.documents.origin),
            SwarmApi(self.swarms, requesters, outbound.client),
            apis.invitations,
        )

    def routes(self) -> list[Route]:
        return [*(route for api in self._apis for route in api.routes()), CHAT_ROUTE]

    async def gauges(self) -> dict[str, tuple[str, float]]:
        """Counts for the metrics."""
        now = self._now()
        return {name: (text, await self._store.count(kind, now)) for name, (kind, text) in _GAUGES.items()}

    async def start(self) -> None:
        """Run tasks and deliveries; in the leader only."""
        self.runner.start()
        await self.agents.start()

    async def stop(self) -> None:
        await self.runner.stop()
        await self.agents.stop()

"""The agents that this service speaks AGP for: itself, and hosted agents whose key it holds; and the credentials of a peer.

Before its hello, a peer is known by the subject of its token and by its invitation. An invitation admits a peer once per
use; a use belongs to an agent and its key, so a peer that reconnects with the same key takes none (ADP-55, P-6). It opens
one private agent, which does not exist for anybody else.
"""

from __future__ import annotations

from collections.abc import Callable

from waypost import limits
from waypost.errors import Forbidden, NotFound, QuotaExceeded, WaypostError
from waypost.messaging.connection import AgpConnection
from waypost.messaging.default_replies import Discover, OfflineReplies, ServiceReplies
from waypost.messaging.endpoint import AgpEndpoint, SystemRandomness
from waypost.messaging.forwarding import MessageForwarding
from waypost.messaging.invitations import InvitationStore, StoredInvitation
from waypost.messaging.message_store import RetentionPolicy
from waypost.messaging.peers import PeerKeySource, PeerVerification, UnrevokedKeys, find_declared_key
from waypost.messaging.relay import Relay
from waypost.model.principal import ANONYMOUS, Principal, may_see
from waypost.model.registration import CatalogEntry
from waypost.protocols.adp.agp.hello import AgpIdentity, Hello
from waypost.protocols.adp.agp.messages import UNKNOWN_AGENT, MessageContent, claimed_sender, read_frame
from waypost.protocols.adp.agp.session import AgpSession, ReplayCache
from waypost.protocols.adp.invitation import SCHEME
from waypost.registry.jobs.periodic import Job, PeriodicJobs
from waypost.registry.ports import KeyValueStore
from waypost.registry.registry import Registry
from waypost.server.auth.authenticator import Authenticator
from waypost.server.hosted_agents.keys import HostedKeys
from waypost.server.http.asgi import Request
from waypost.trust.keys.private_key import PrivateKey


class AgpCredentials:
    def __init__(
        self, principal: Principal = ANONYMOUS, code: str | None = None, held: StoredInvitation | None = None
    ) -> None:
        self.principal = principal
        self._code = code
        self._held = held

    def sees(self, entry: CatalogEntry) -> bool:
        """Whether the peer may know of an agent, by its token or by an invitation to that agent."""
        return may_see(self.principal, entry.scopes) or self.is_invited_to(entry)

    def is_invited_to(self, entry: CatalogEntry) -> bool:
        return self._held is not None and self._held.record == entry.id

    async def redeem(self, invitations: InvitationStore, entry: CatalogEntry, hello: Hello) -> None:
        """Take one use of the invitation for a peer, which must prove the key it presents. Without uses left it is not
        invited."""
        if self._code is None or not self.is_invited_to(entry) or may_see(self.principal, entry.scopes):
            return
        self._held = await invitations.redeem(self._code, entry.id, f"{hello.agent} {hello.fingerprint}")


async def read_credentials(
    request: Request, authenticator: Authenticator, invitations: InvitationStore | None
) -> AgpCredentials:
    """Read the credentials: an invalid token is an error, an invalid invitation is ignored."""
    scheme, _, credential = (request.header(b"authorization") or "").partition(" ")
    is_invitation = scheme.lower() == SCHEME.lower()
    code = credential.strip() if is_invitation else request.param("invite")
    principal = await authenticator.authenticate(request) if scheme and not is_invitation else ANONYMOUS
    if code is None or invitations is None:
        return AgpCredentials(principal)
    return AgpCredentials(principal, code, await invitations.find(code))


NO_CREDENTIALS = AgpCredentials()


AGENT_URI_PREFIX = "agent:"

_FORWARD_SECONDS = 0.5  # between two looks for messages that other nodes left for agents connected here

_BINDING_SOURCES = ("domain", "pin", "registry")  # sources of key bindings; a token only identifies the caller


class AgpAgents:
    def __init__(
        self,
        registry: Registry,
        keeper: KeyValueStore,
        keys: HostedKeys,
        peers: PeerKeySource,
        own: str,
        discover: Discover,
        node_url: str | None = None,
    ) -> None:
        """`own`: the Agent URI of the service. `node_url`: where other nodes of its cluster reach this one."""
        self.own = own
        self.peers: PeerKeySource = UnrevokedKeys(peers, registry)
        self.rights: dict[str, Principal] = {}  # connected peers with a valid token
        self._registry = registry
        self._keeper = keeper
        self._keys = keys
        self._guide = ServiceReplies(registry, discover, lambda agent: self.rights.get(agent, ANONYMOUS))
        self._concierge = OfflineReplies(registry)
        self._peer_verification = PeerVerification(registry)
        self._memory = ReplayCache()
        self._draws = SystemRandomness()
        self._agents: dict[str, tuple[str, AgpEndpoint]] = {}
        own_key = keys.key_of(own.removeprefix(AGENT_URI_PREFIX))
        self.relay = (
            Relay(_party(own, own_key), keeper, self.peers, registry.clock, self._draws, node_url) if own_key else None
        )
        self._forwarding = None if node_url is None else MessageForwarding(keeper, registry.clock.now, node_url)
        self._jobs = PeriodicJobs((Job("forwarded messages", _FORWARD_SECONDS, self._send_forwarded),))

    async def start(self) -> None:
        service = self.find(self.own)
        if service is not None:
            await service.recover()
        self._jobs.start()

    async def stop(self) -> None:
        await self._jobs.stop()
        for _, correspondent in self._agents.values():
            await correspondent.close()

    def find(self, agent: str, visitor: AgpCredentials = NO_CREDENTIALS) -> AgpEndpoint | None:
        """The endpoint of an agent, if this service speaks for it and the peer may know of it."""
        if agent != self.own and not self.is_hosted(agent.removeprefix(AGENT_URI_PREFIX), visitor):
            return None
        key = self._keys.key_of(agent.removeprefix(AGENT_URI_PREFIX))
        if key is None:
            return None
        fingerprint = key.public.fingerprint() or ""
        known = self._agents.get(agent)
        if known is None or known[0] != fingerprint:
            known = self._agents[agent] = (fingerprint, self._correspondent(agent, key))
        return known[1]

    @property
    def lines(self) -> frozenset[str]:
        """The agents that are connected to the relay."""
        return frozenset() if self.relay is None else self.relay.attached

    async def tell(self, agent: str, content: MessageContent) -> bool:
        """Send a message from the service to an agent that is connected, to this node or to another one; False if it is not, or
        if its queue is full."""
        service = self.find(self.own)
        if service is None:
            return False
        if agent not in self.lines:
            return await self._forward(agent, content)
        try:
            await service.send(service.make_message(agent, content, kind="task"))
        except QuotaExceeded:
            return False
        return True

    async def _forward(self, agent: str, content: MessageContent) -> bool:
        if self._forwarding is None or self.relay is None:
            return False
        node = await self.relay.find_node(agent)
        return node is not None and await self._forwarding.put(node, agent, content)

    async def _send_forwarded(self) -> None:
        """Send what other nodes left here. An agent that has connected to another node since gets it from that one."""
        if self._forwarding is not None and self.lines:
            for agent, content in await self._forwarding.take():
                await self.tell(agent, content)

    def refusal(self, first: str | bytes, error: WaypostError) -> str | None:
        """The endpoint that reports handshake errors. An agent that is not connected here may still connect."""
        key = self._keys.key_of(self.own.removeprefix(AGENT_URI_PREFIX))
        if key is None:
            return None
        try:
            caller = claimed_sender(read_frame(first))
        except WaypostError:
            caller = UNKNOWN_AGENT
        session = AgpSession(_party(self.own, key), self._draws, peer=caller, calls=True)
        return session.fault_frame(error, self._registry.clock.latest(), again=isinstance(error, Forbidden))

    def on_revoked(self, listener: Callable[[str, str], None]) -> None:
        self._registry.trust.on_revoked(listener)

    def unrevoked(self, peers: PeerKeySource) -> PeerKeySource:
        return UnrevokedKeys(peers, self._registry)

    async def owned_key(self, agent: str, principal: Principal) -> bytes | None:
        """The key that the owner put into the agent's record."""
        try:
            registration = await self._registry.get(principal, agent)
        except NotFound:
            return None
        key = find_declared_key(registration, agent) if registration.owner == principal.subject else None
        return None if key is None else key.raw

    def is_hosted(self, domain: str, visitor: AgpCredentials = NO_CREDENTIALS) -> bool:
        entry = self._registry.hosted(domain) if domain else None
        return entry is not None and visitor.sees(entry)

    def entry_of(self, agent: str) -> CatalogEntry | None:
        """Find an agent's record by name or hosted domain."""
        return self._registry.entries.find_named(agent) or self._registry.hosted(agent.removeprefix(AGENT_URI_PREFIX))

    def knows(self, agent: str) -> bool:
        return self.entry_of(agent) is not None

    def _correspondent(self, agent: str, key: PrivateKey) -> AgpEndpoint:
        is_own = agent == self.own
        return AgpEndpoint(
            _party(agent, key),
            self._keeper,
            self.peers,
            self._registry.clock,
            self._draws,
            on_chat=self._guide.answer if is_own else self._concierge.answer,
            on_task=self._guide.task if is_own else None,
            on_open=self._met,
            replay_cache=self._memory,
            retention=RetentionPolicy(
                outbox_seconds=limits.AGP_ANSWERS_SECONDS, seen_seconds=limits.AGP_SERVICE_DEDUP_SECONDS, only_cut=True
            ),
        )

    async def _met(self, conversation: AgpConnection) -> None:
        """Both sides are verified: mark the record of the peer as `peer-verified`."""
        verdict, peer = conversation.verdict(), conversation.peer_key
        if verdict is not None and peer is not None and verdict.state == "passed" and peer.by in _BINDING_SOURCES:
            await self._peer_verification.record(peer.agent, verdict)


def _party(agent: str, key: PrivateKey) -> AgpIdentity:
    return AgpIdentity(agent=agent, key=key, fingerprint=key.public.fingerprint() or "", raw=key.public.raw or b"")

"""The agents that this service speaks for: itself, and those hosted here whose key it holds."""

from __future__ import annotations

from collections.abc import Callable

from waypost import limits
from waypost.errors import Forbidden, NotFound, QuotaExceeded, WaypostError
from waypost.meeting.conversation import Conversation
from waypost.meeting.correspondent import Correspondent
from waypost.meeting.draws import SystemDraws
from waypost.meeting.guide import Concierge, Discover, Guide
from waypost.meeting.lifting import Lifting
from waypost.meeting.mail import Keeping
from waypost.meeting.peers import PeerKeys, UnrevokedKeys, stated_key
from waypost.meeting.relay import Relay
from waypost.model.principal import ANONYMOUS, Principal
from waypost.model.registration import Entry
from waypost.registry.engine import Registry
from waypost.registry.keeping import Keeper
from waypost.server.agp_visitor import STRANGER, Visitor
from waypost.server.hosted_keys import HostedKeys
from waypost.trust.signing import PrivateKey
from waypost.wire.agp import NOBODY, Content, named_sender, read_frame
from waypost.wire.agp_hello import Party
from waypost.wire.agp_replay import ReplayMemory
from waypost.wire.agp_session import AgpSession

SCHEME = "agent:"
_BINDING = ("domain", "pin", "registry")  # what says whose key it is; a token says who asks


class OwnAgents:
    def __init__(
        self, registry: Registry, keeper: Keeper, keys: HostedKeys, peers: PeerKeys, own: str, discover: Discover
    ) -> None:
        """`own`: the Agent URI of the service."""
        self.own = own
        self.peers: PeerKeys = UnrevokedKeys(peers, registry)
        self.rights: dict[str, Principal] = {}  # of peers whose token holds, while they are here
        self._registry = registry
        self._keeper = keeper
        self._keys = keys
        self._guide = Guide(registry, discover, lambda agent: self.rights.get(agent, ANONYMOUS))
        self._concierge = Concierge(registry)
        self._lifting = Lifting(registry)
        self._memory = ReplayMemory()
        self._draws = SystemDraws()
        self._agents: dict[str, tuple[str, Correspondent]] = {}
        own_key = keys.key_of(own.removeprefix(SCHEME))
        self.relay = Relay(_party(own, own_key), keeper, self.peers, registry.clock, self._draws) if own_key else None

    async def start(self) -> None:
        service = self.find(self.own)
        if service is not None:
            await service.recover()

    async def stop(self) -> None:
        for _, correspondent in self._agents.values():
            await correspondent.close()

    def find(self, agent: str, visitor: Visitor = STRANGER) -> Correspondent | None:
        """Who answers for an agent, if that is us, and if who asks may know of it."""
        if agent != self.own and not self.is_hosted(agent.removeprefix(SCHEME), visitor):
            return None
        key = self._keys.key_of(agent.removeprefix(SCHEME))
        if key is None:
            return None
        fingerprint = key.public.fingerprint() or ""
        known = self._agents.get(agent)
        if known is None or known[0] != fingerprint:
            known = self._agents[agent] = (fingerprint, self._correspondent(agent, key))
        return known[1]

    @property
    def lines(self) -> frozenset[str]:
        """The agents that hold a line here."""
        return frozenset() if self.relay is None else self.relay.attached

    async def tell(self, agent: str, content: Content) -> bool:
        """Say something, as the service, to an agent that holds a line; False when it does not, or takes no more."""
        service = self.find(self.own)
        if service is None or agent not in self.lines:
            return False
        try:
            await service.send(service.letter(agent, content, kind="task"))
        except QuotaExceeded:
            return False
        return True

    def refusal(self, first: str | bytes, error: WaypostError) -> str | None:
        """What the service tells somebody who gets no further than a first frame. An agent that is not here may come."""
        key = self._keys.key_of(self.own.removeprefix(SCHEME))
        if key is None:
            return None
        try:
            caller = named_sender(read_frame(first))
        except WaypostError:
            caller = NOBODY
        session = AgpSession(_party(self.own, key), self._draws, peer=caller, calls=True)
        return session.fault_frame(error, self._registry.clock.now(), again=isinstance(error, Forbidden))

    def on_revoked(self, told: Callable[[str, str], None]) -> None:
        self._registry.trust.on_revoked(told)

    def unrevoked(self, peers: PeerKeys) -> PeerKeys:
        return UnrevokedKeys(peers, self._registry)

    async def owned_key(self, agent: str, principal: Principal) -> bytes | None:
        """The key that the owner of an agent's record says that it has."""
        try:
            registration = await self._registry.get(principal, agent)
        except NotFound:
            return None
        key = stated_key(registration, agent) if registration.owner == principal.subject else None
        return None if key is None else key.raw

    def is_hosted(self, domain: str, visitor: Visitor = STRANGER) -> bool:
        entry = self._registry.hosted(domain) if domain else None
        return entry is not None and visitor.sees(entry)

    def entry_of(self, agent: str) -> Entry | None:
        """The record of an agent: by its name, or by the domain that it is hosted under."""
        found = self._registry.catalogue.resolve(agent)
        entry = self._registry.catalogue.find(found) if found is not None else None
        return entry or self._registry.hosted(agent.removeprefix(SCHEME))

    def knows(self, agent: str) -> bool:
        return self.entry_of(agent) is not None

    def _correspondent(self, agent: str, key: PrivateKey) -> Correspondent:
        is_own = agent == self.own
        return Correspondent(
            _party(agent, key),
            self._keeper,
            self.peers,
            self._registry.clock,
            self._draws,
            chat=self._guide.answer if is_own else self._concierge.answer,
            task=self._guide.task if is_own else None,
            on_open=self._met,
            memory=self._memory,
            keeping=Keeping(
                outbox_seconds=limits.AGP_ANSWERS_SECONDS, seen_seconds=limits.AGP_SERVICE_SEEN_SECONDS, only_cut=True
            ),
        )

    async def _met(self, conversation: Conversation) -> None:
        """Both sides are known: the record of the peer says so from now on."""
        verdict, peer = conversation.verdict(), conversation.peer_key
        if verdict is not None and peer is not None and verdict.state == "passed" and peer.by in _BINDING:
            await self._lifting.lift(peer.agent, verdict)


def _party(agent: str, key: PrivateKey) -> Party:
    return Party(agent=agent, key=key, fingerprint=key.public.fingerprint() or "", raw=key.public.raw or b"")

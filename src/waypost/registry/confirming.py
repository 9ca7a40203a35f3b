"""What waits for a word of its owner: show it, let it pass, or forget it. The half of `engine.Registry` for held changes."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from waypost.model.principal import SCOPE_WRITE, Principal
from waypost.registry import decisions, renewing
from waypost.registry.drift import HeldChange, held_name, load_held
from waypost.registry.holding import has_lapsed, lapse, need_held
from waypost.registry.judging import Judging
from waypost.registry.ports import Answer, Command
from waypost.registry.publication import Publication, Receipt
from waypost.trust.policy import require_owner


class Confirming(Judging, ABC):
    """Filled by `engine.Registry`. What is let pass is written as any other document: by these two."""

    @abstractmethod
    async def publish(self, publication: Publication) -> Receipt: ...

    @abstractmethod
    def receipt(self, answer: Answer, dialect: str) -> Receipt: ...

    async def held(self, principal: Principal, key: str) -> HeldChange:
        """The change of an agent that waits. Only who may change the agent is told of it."""
        entry = self.resolve(principal, key)
        require_owner(principal, entry.owner, entry.scopes, key)
        return need_held(await self._noted(entry.id), None, self.clock.now())

    async def find_held(self, agent_id: str) -> HeldChange | None:
        return load_held(await self._noted(agent_id))

    async def confirm(self, principal: Principal, key: str, etag: str) -> Receipt:
        """Let the change pass that waits under this etag. It is judged as any write is, but for the waiting."""
        entry = self.resolve(principal, key)
        require_owner(principal, entry.owner, entry.scopes, key)
        waiting = need_held(await self._noted(entry.id), etag, self.clock.now())
        return await self.publish(self._publication(waiting, entry.id, principal))

    async def reject(self, principal: Principal, key: str, etag: str) -> Receipt:
        """Forget the change that waits under this etag."""
        agent_id = self.resolve(principal, key).id
        decide = renewing.reject(principal, agent_id, etag, now=self.clock.now())
        answer = await self.store.execute(Command(keys=(agent_id,), notes=(held_name(agent_id),), decide=decide))
        dialect = answer.registration.sources[0].dialect if answer.registration else "profile"
        return self.receipt(answer, dialect)

    async def forget_held(self) -> None:
        """Notes of changes that nobody confirmed in time."""
        now = self.clock.now()
        for name, data in await self.store.notes(held_name("")):
            if has_lapsed(data, now):
                await self.store.execute(Command(keys=(), notes=(name,), decide=lapse(name, now=now)))

    async def _noted(self, agent_id: str) -> bytes | None:
        name = held_name(agent_id)
        return dict(await self.store.notes(name)).get(name)

    def _publication(self, waiting: HeldChange, agent_id: str, confirmed_by: Principal) -> Publication:
        """The write as it was asked for, by whom it was asked for; and who confirms it. It may have another id of its own than
        the agent that it was taken for."""
        decoded = decisions.decoded_again(waiting.document, waiting.dialect, waiting.source_url, self.clock.now())
        record = msgspec.structs.replace(decoded.record, id=agent_id)
        document = msgspec.structs.replace(decoded, record=record, aliases=(decoded.record.id, *decoded.aliases))
        return Publication(
            dialect=waiting.dialect,
            document=waiting.document,
            decoded=document,
            principal=Principal(subject=waiting.subject, scopes=frozenset((SCOPE_WRITE,)), via=waiting.via),
            via=waiting.via,
            visibility=waiting.visibility,
            ttl_seconds=waiting.ttl_seconds,
            if_match=(waiting.base,),  # what was looked at is what is replaced
            source_url=waiting.source_url,
            confirmed_by=confirmed_by,
        )

"""What waits for a word of its owner: show it, let it pass, or forget it. The half of `engine.Registry` for held changes."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from waypost.model.principal import SCOPE_WRITE, Principal
from waypost.registry import write_rules
from waypost.registry.ports import Command, CommandResult
from waypost.registry.publication import PendingChange, Publication, PublicationReceipt, load_pending, pending_note_name
from waypost.registry.verification import RegistryVerifier
from waypost.registry.write_rules import expire_pending, has_pending_expired, require_pending
from waypost.trust.policy import require_owner


class PendingChanges(RegistryVerifier, ABC):
    """Filled by `engine.Registry`. What is let pass is written as any other document: by these two."""

    @abstractmethod
    async def publish(self, publication: Publication) -> PublicationReceipt: ...

    @abstractmethod
    def receipt(self, answer: CommandResult, dialect: str) -> PublicationReceipt: ...

    async def held(self, principal: Principal, key: str) -> PendingChange:
        """The change of an agent that waits. Only who may change the agent is told of it."""
        entry = self.resolve(principal, key)
        require_owner(principal, entry.owner, entry.scopes, key)
        return require_pending(await self._noted(entry.id), None, self.clock.now())

    async def find_pending(self, agent_id: str) -> PendingChange | None:
        return load_pending(await self._noted(agent_id))

    async def confirm(self, principal: Principal, key: str, etag: str) -> PublicationReceipt:
        """Let the change pass that waits under this etag. It is judged as any write is, but for the waiting."""
        entry = self.resolve(principal, key)
        require_owner(principal, entry.owner, entry.scopes, key)
        waiting = require_pending(await self._noted(entry.id), etag, self.clock.now())
        return await self.publish(self._publication(waiting, entry.id, principal))

    async def reject(self, principal: Principal, key: str, etag: str) -> PublicationReceipt:
        """Forget the change that waits under this etag."""
        agent_id = self.resolve(principal, key).id
        decide = write_rules.reject_pending(principal, agent_id, etag, now=self.clock.now())
        answer = await self.store.execute(
            Command(keys=(agent_id,), notes=(pending_note_name(agent_id),), decide=decide)
        )
        dialect = answer.registration.sources[0].dialect if answer.registration else "profile"
        return self.receipt(answer, dialect)

    async def expire_pending(self) -> None:
        """Notes of changes that nobody confirmed in time."""
        now = self.clock.now()
        for name, data in await self.store.notes(pending_note_name("")):
            if has_pending_expired(data, now):
                await self.store.execute(Command(keys=(), notes=(name,), decide=expire_pending(name, now=now)))

    async def _noted(self, agent_id: str) -> bytes | None:
        name = pending_note_name(agent_id)
        return dict(await self.store.notes(name)).get(name)

    def _publication(self, waiting: PendingChange, agent_id: str, confirmed_by: Principal) -> Publication:
        """The write as it was asked for, by whom it was asked for; and who confirms it. It may have another id of its own than
        the agent that it was taken for."""
        decoded = write_rules.decode_again(waiting.document, waiting.dialect, waiting.source_url, self.clock.now())
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

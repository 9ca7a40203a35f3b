"""Pending changes of verified agents: show, confirm or reject."""

from __future__ import annotations

import msgspec

from waypost.model.principal import SCOPE_WRITE, Principal
from waypost.registry import write_rules
from waypost.registry.ports import Clock, Command, Store
from waypost.registry.publication import PendingChange, Publication, PublicationReceipt, pending_note_name
from waypost.registry.reader import RegistryReader
from waypost.registry.writer import RegistryWriter
from waypost.trust.policy import require_owner


class PendingChanges:
    def __init__(self, reader: RegistryReader, writer: RegistryWriter, store: Store, clock: Clock) -> None:
        self._reader = reader
        self._writer = writer
        self._store = store
        self._clock = clock

    async def get(self, principal: Principal, key: str, etag: str | None = None) -> PendingChange:
        """The pending change of an agent, for those who may change the agent; with `etag` only if it has that one."""
        entry = self._reader.resolve(principal, key)
        require_owner(principal, entry.owner, entry.scopes, key)
        return write_rules.require_pending(await self._writer.find_pending(entry.id), etag, self._clock.now())

    async def confirm(self, principal: Principal, key: str, etag: str) -> PublicationReceipt:
        """Publish the change. It passes the checks of any write, but is not held again."""
        change = await self.get(principal, key, etag)
        agent_id = self._reader.resolve(principal, key).id
        return await self._writer.publish(self._to_publication(change, agent_id, principal))

    async def reject(self, principal: Principal, key: str, etag: str) -> PublicationReceipt:
        agent_id = self._reader.resolve(principal, key).id
        decide = write_rules.reject_pending(principal, agent_id, etag, now=self._clock.now())
        return await self._writer.change(agent_id, decide, (pending_note_name(agent_id),))

    async def count(self) -> int:
        return len(await self._store.notes(pending_note_name("")))

    async def expire(self) -> None:
        """Remove changes that were not confirmed in time."""
        now = self._clock.now()
        for name, data in await self._store.notes(pending_note_name("")):
            if write_rules.has_pending_expired(data, now):
                decide = write_rules.expire_pending(name, now=now)
                await self._store.execute(Command(keys=(), notes=(name,), decide=decide))

    def _to_publication(self, change: PendingChange, agent_id: str, confirmed_by: Principal) -> Publication:
        """The original write, on behalf of its original subject. Its document may state another id than the agent's."""
        decoded = write_rules.decode_again(change.document, change.dialect, change.source_url, self._clock.now())
        record = msgspec.structs.replace(decoded.record, id=agent_id)
        return Publication(
            dialect=change.dialect,
            document=change.document,
            decoded=msgspec.structs.replace(decoded, record=record, aliases=(decoded.record.id, *decoded.aliases)),
            principal=Principal(subject=change.subject, scopes=frozenset((SCOPE_WRITE,)), via=change.via),
            via=change.via,
            visibility=change.visibility,
            ttl_seconds=change.ttl_seconds,
            if_match=(change.base,),  # the confirmed difference is against this version
            source_url=change.source_url,
            confirmed_by=confirmed_by,
        )

"""Judging what is held once more: to tell whoever asks, and to take over what a newly bound key changes.

A half of `engine.Registry`. Verdicts are made when a document comes in; a key that is bound later would else count only from
the next document on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from waypost.model.names import domain_of
from waypost.model.principal import Principal
from waypost.model.registration import Registration, verdicts_of
from waypost.model.verdict import State, Verdict, level_of, states_of
from waypost.registry.auditing import entry_of_judging
from waypost.registry.ports import Change, Command, Decision, Held
from waypost.registry.reading import Reading
from waypost.registry.trustbook import agent_name, record_name
from waypost.registry.verification import judge_again, judge_document, key_notes


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as answers show it, and as it is judged now."""

    held: Registration
    now: Registration
    at: float

    @property
    def is_changed(self) -> bool:
        return _states(self.held) != _states(self.now)


class Judging(Reading):
    """Filled by `engine.Registry`."""

    async def verify(self, principal: Principal, key: str) -> Judged:
        """Every check of every document of an agent, made now. Nothing is written."""
        held = await self.get(principal, key)
        now = self.clock.now()
        judged = msgspec.structs.replace(held, sources=judge_again(held, await self._key_notes(held.id), now))
        return Judged(held=held, now=judged, at=now)

    async def verify_document(self, dialect: str, document: bytes, agent_id: str) -> tuple[Verdict, ...]:
        """The checks of a document that is not registered, with the keys that are bound to its agent here."""
        return judge_document(dialect, document, agent_id, await self._key_notes(agent_id), self.clock.now())

    async def _key_notes(self, agent_id: str) -> dict[str, bytes]:
        notes: dict[str, bytes] = {}
        for name in key_notes(agent_id):
            notes.update(await self.store.notes(name))
        return notes

    async def judge_anew(self, name: str) -> list[str]:
        """Take over what a newly bound key changes: of the agent of this name, or of all ids of this domain. Their ids."""
        changed: list[str] = []
        for agent_id in self._named(name):
            command = Command(
                keys=(agent_id,), notes=key_notes(agent_id), decide=_take_over(agent_id, self.clock.now())
            )
            if (await self.store.execute(command)).outcome == "judged":
                changed.append(agent_id)
        return changed

    def _named(self, name: str) -> Sequence[str]:
        known = self.catalogue.resolve(record_name(name)) or self.catalogue.resolve(name)
        if known is not None and agent_name(known) == agent_name(name):
            return (known,)
        return [agent_id for agent_id in self.catalogue.ids() if domain_of(agent_id) == name] if "." in name else ()


def _take_over(agent_id: str, now: float) -> Callable[[Held], Decision]:
    def decide(held: Held) -> Decision:
        current = held.registrations.get(agent_id)
        if current is None:
            return Decision(outcome="gone")
        judged = msgspec.structs.replace(current, sources=judge_again(current, held.notes, now), changed_at=now)
        if _states(judged) == _states(current):
            return Decision(outcome="unchanged", registration=current)
        level = level_of(verdicts_of(judged))
        change = Change(type="updated", at=now, registration=judged, before=current.scopes)
        return Decision(outcome="judged", change=change, audit=(entry_of_judging(judged.id, judged.etag, level, now),))

    return decide


def _states(registration: Registration) -> list[set[tuple[str, State]]]:
    return [states_of(source.verdicts) for source in registration.sources]

"""`peer-verified` on the record of an agent that the service met: signatures both ways, with the key that is known of it.

The verdict goes into the source that the key belongs to, the agent's ADP document. It is taken over once a day at most, and
falls with the document: another document is another claim.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from waypost.meeting.peers import CHECK
from waypost.model.registration import Registration, Source
from waypost.model.times import find_instant
from waypost.model.verdict import Verdict
from waypost.registry.engine import Registry
from waypost.registry.ports import AuditEntry, Change, Command, Decision, Held

_FRESH_SECONDS = 86_400.0


class Lifting:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def lift(self, agent: str, verdict: Verdict) -> bool:
        """Whether the record of the agent says something else now."""
        known = self._registry.catalogue.resolve(agent)
        if known is None:
            return False
        now = self._registry.clock.now()
        command = Command(keys=(known,), notes=(), decide=_lifted(known, agent, verdict, now))
        return (await self._registry.store.execute(command)).outcome == "judged"


def _lifted(agent_id: str, agent: str, verdict: Verdict, now: float) -> Callable[[Held], Decision]:
    def decide(held: Held) -> Decision:
        current = held.registrations.get(agent_id)
        if current is None:
            return Decision(outcome="gone")
        sources = tuple(_with(source, agent, verdict, now) for source in current.sources)
        if sources == current.sources:
            return Decision(outcome="unchanged", registration=current)
        lifted: Registration = msgspec.structs.replace(current, sources=sources, changed_at=now)
        entry = AuditEntry(
            at=now,
            action="judge",
            subject=agent,
            object=agent_id,
            outcome=f"{CHECK} {verdict.state}",
            via="agp",
            etag=lifted.etag,
        )
        change = Change(type="updated", at=now, registration=lifted, before=current.scopes)
        return Decision(outcome="judged", change=change, audit=(entry,))

    return decide


def _with(source: Source, agent: str, verdict: Verdict, now: float) -> Source:
    if source.dialect != "adp" or source.id.lower() != agent:
        return source
    before = next((each for each in source.verdicts if each.check == CHECK), None)
    if before is not None and _is_same(before, verdict) and now - (find_instant(before.at) or 0.0) < _FRESH_SECONDS:
        return source
    others = tuple(each for each in source.verdicts if each.check != CHECK)
    return msgspec.structs.replace(source, verdicts=(*others, verdict))


def _is_same(before: Verdict, now: Verdict) -> bool:
    return (before.state, before.evidence) == (now.state, now.evidence)

"""What is to be changed in a zone so that it holds what it should, and what is not ours to touch in it.

Sets of records are compared as texts in one spelling, which whoever reads and writes them gives them. Some names are shared:
`_agent` with AID, the lists of an organisation with its other agents. There, what is ours is replaced and the rest stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

Key = tuple[str, str]  # name and type
_STRING_CHARS = 255  # of one character-string of TXT
State = Literal["same", "missing", "differs", "extra", "unanswered"]


class RecordSet(msgspec.Struct, frozen=True, kw_only=True):
    """All records of a name and type. `data` is sorted."""

    name: str
    type: str
    ttl: int
    data: tuple[str, ...]

    @property
    def key(self) -> Key:
        return self.name, self.type


class SetChange(msgspec.Struct, frozen=True, kw_only=True):
    """What was there, and what will be; None is nothing."""

    name: str
    type: str
    before: RecordSet | None = None
    after: RecordSet | None = None

    def reversed(self) -> SetChange:
        return SetChange(name=self.name, type=self.type, before=self.after, after=self.before)


def plan_changes(
    wanted: Iterable[RecordSet], live: Mapping[Key, RecordSet | None], gone: Iterable[Key] = ()
) -> list[SetChange]:
    """What makes `live` hold what is wanted, and no longer what is gone."""
    changes = []
    for each in wanted:
        before = live.get(each.key)
        after = merged(each, before)
        if before != after:
            changes.append(SetChange(name=each.name, type=each.type, before=before, after=after))
    for name, kind in gone:
        before = live.get((name, kind))
        if before is not None:
            changes.append(SetChange(name=name, type=kind, before=before))
    return changes


def plan_withdrawal(wanted: Iterable[RecordSet], live: Mapping[Key, RecordSet | None]) -> list[SetChange]:
    """What takes an agent out of a zone, and leaves there what is others'."""
    changes = []
    for each in wanted:
        before = live.get(each.key)
        if before is None:
            continue
        rest = _others(each, before) if _is_shared(each) else ()
        after = msgspec.structs.replace(before, data=rest) if rest else None
        if after != before:
            changes.append(SetChange(name=each.name, type=each.type, before=before, after=after))
    return changes


def judge(wanted: RecordSet, live: RecordSet | None) -> State:
    """Whether a server holds what it should; TTLs count down on the way and are nobody's fault."""
    if live is None:
        return "missing"
    after = merged(wanted, live).data
    if after == live.data:
        return "same"
    return "extra" if set(after) < set(live.data) else "differs"


def merged(wanted: RecordSet, live: RecordSet | None) -> RecordSet:
    """What is wanted, beside what is others'."""
    if live is None or not _is_shared(wanted):
        return wanted
    if wanted.type == "TXT" and wanted.name.startswith("_index."):
        return _merged_list(wanted, live)
    return msgspec.structs.replace(wanted, data=tuple(sorted({*wanted.data, *_others(wanted, live)})))


def _is_shared(wanted: RecordSet) -> bool:
    if wanted.type == "TXT":
        return wanted.name.startswith(("_agent.", "_index._agents."))
    return wanted.type == "SVCB" and wanted.name.startswith("_agents.")


def _others(wanted: RecordSet, live: RecordSet) -> tuple[str, ...]:
    """Records of a shared name that are not ours: other texts than ADP's, other agents' aliases."""
    if wanted.type == "TXT" and wanted.name.startswith("_agent."):
        return tuple(text for text in live.data if not text.lstrip('"').lower().startswith("v=adp"))
    if wanted.type == "TXT":
        return tuple(text for text in live.data if not text.startswith('"agents='))
    return tuple(text for text in live.data if text not in wanted.data)


def _merged_list(wanted: RecordSet, live: RecordSet) -> RecordSet:
    """`agents=a:p,b:p` of both: ours as they should be, the others' as they are."""
    ours = dict(_listed(text) for data in wanted.data for text in _items(data))
    theirs = dict(_listed(text) for data in live.data for text in _items(data))
    entries = "agents=" + ",".join(f"{name}:{protocol}" for name, protocol in sorted((theirs | ours).items()))
    strings = " ".join(f'"{entries[at : at + _STRING_CHARS]}"' for at in range(0, len(entries), _STRING_CHARS))
    return msgspec.structs.replace(wanted, data=tuple(sorted({strings, *_others(wanted, live)})))


def _items(data: str) -> list[str]:
    text = data.replace('" "', "").strip('"')
    return [item for item in text.removeprefix("agents=").split(",") if item] if text.startswith("agents=") else []


def _listed(item: str) -> tuple[str, str]:
    name, _, protocol = item.partition(":")
    return name.strip(), protocol.strip()

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


def plan_changes(wanted: Iterable[RecordSet], live: Mapping[Key, RecordSet | None]) -> list[SetChange]:
    """What makes `live` hold what is wanted."""
    changes = []
    for each in wanted:
        before = live.get(each.key)
        after = merged(each, before)
        if before != after:
            changes.append(SetChange(name=each.name, type=each.type, before=before, after=after))
    return changes


def plan_withdrawal(wanted: Iterable[RecordSet], live: Mapping[Key, RecordSet | None], domain: str) -> list[SetChange]:
    """What takes an agent out of a zone, and leaves there what is others': their records at shared names, the other agents of
    an organisation, and the host of a provider."""
    changes = []
    for each in wanted:
        before = live.get(each.key)
        if before is None:
            continue
        rest = _without(before, domain)
        after = msgspec.structs.replace(before, data=rest) if rest else None
        if after != before:
            changes.append(SetChange(name=each.name, type=each.type, before=before, after=after))
    return changes


def _without(held: RecordSet, domain: str) -> tuple[str, ...]:
    """A set without what tells of a domain."""
    if held.name == domain or held.name.endswith(f".{domain}"):
        return _others(held, held) if _is_shared(held) else ()
    if held.type == "SVCB":  # the aliases of an organisation; a host that serves its index stays
        return tuple(data for data in held.data if data != f"0 {domain}.")
    if held.type == "TXT" and held.name.startswith("_index._agents."):
        label = domain.removesuffix(f".{held.name.removeprefix('_index._agents.')}")
        kept = {name: protocol for name, protocol in _all_listed(held).items() if name != label}
        return tuple(sorted({*_list_strings(kept), *_others(held, held)}))
    return held.data


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
    entries = _all_listed(live) | _all_listed(wanted)
    return msgspec.structs.replace(wanted, data=tuple(sorted({*_list_strings(entries), *_others(wanted, live)})))


def _all_listed(held: RecordSet) -> dict[str, str]:
    return dict(_listed(text) for data in held.data for text in _items(data))


def _list_strings(entries: Mapping[str, str]) -> tuple[str, ...]:
    """The list as one record of as many strings as it takes; none for nobody."""
    if not entries:
        return ()
    text = "agents=" + ",".join(f"{name}:{protocol}" for name, protocol in sorted(entries.items()))
    return (" ".join(f'"{text[at : at + _STRING_CHARS]}"' for at in range(0, len(text), _STRING_CHARS)),)


def _items(data: str) -> list[str]:
    text = data.replace('" "', "").strip('"')
    return [item for item in text.removeprefix("agents=").split(",") if item] if text.startswith("agents=") else []


def _listed(item: str) -> tuple[str, str]:
    name, _, protocol = item.partition(":")
    return name.strip(), protocol.strip()

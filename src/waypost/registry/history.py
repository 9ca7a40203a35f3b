"""Earlier contents of an agent, for whoever saw them when they were current: a version that was hidden stays hidden."""

from __future__ import annotations

from typing import Any

import msgspec

from waypost import limits
from waypost.errors import NotFound
from waypost.model.difference import Difference, differences_between
from waypost.model.history import Version, version_of
from waypost.model.principal import Principal
from waypost.model.registration import Registration
from waypost.registry.publication import content_part
from waypost.registry.reading import Reading
from waypost.trust.policy import may_change, may_see


class VersionLine(msgspec.Struct, frozen=True, kw_only=True):
    """One content in the list of them. `changed` are the places that differ from the next older one that is shown."""

    version: Version
    changed: list[str] | None  # None: nothing older is shown
    current: bool


class History(msgspec.Struct, frozen=True, kw_only=True):
    registration: Registration
    lines: list[VersionLine]  # the newest first
    names_subjects: bool  # the caller may know who wrote what


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    before: Version
    after: Version
    differences: list[Difference]


async def history_of(registry: Reading, principal: Principal, key: str, limit: int) -> History:
    registration, versions = await _versions(registry, principal, key)
    lines = []
    for version, older in zip(versions, [*versions[1:], None], strict=True):
        changed = None if older is None else [each.path for each in _compare(older, version)]
        lines.append(VersionLine(version=version, changed=changed, current=version is versions[0]))
    return History(
        registration=registration,
        lines=lines[:limit],
        names_subjects=may_change(principal, registration.owner),
    )


async def compare_versions(
    registry: Reading, principal: Principal, key: str, before: str | None, after: str | None
) -> Comparison:
    """Two contents by their entity tags; without them the current one and the one before it."""
    registration, versions = await _versions(registry, principal, key)
    place = 0 if after is None else _find(versions, after, "to")
    if before is not None:
        older = versions[_find(versions, before, "from")]
    elif place + 1 < len(versions):
        older = versions[place + 1]
    else:
        raise NotFound("No earlier version of this agent is kept.", path="from", hint="See its history for what is.")
    return Comparison(
        id=registration.id, before=older, after=versions[place], differences=_compare(older, versions[place])
    )


async def _versions(registry: Reading, principal: Principal, key: str) -> tuple[Registration, list[Version]]:
    """The current content and, of the earlier ones, those that the caller could see."""
    registration = await registry.get(principal, key)
    kept = await registry.store.history(registration.id, limits.HISTORY_VERSIONS)
    seen = [each for each in kept if each.revision < registration.revision and may_see(principal, each.scopes)]
    return registration, [version_of(registration), *seen]


def _find(versions: list[Version], etag: str, name: str) -> int:
    wanted = content_part(etag.strip('"'))
    for place, version in enumerate(versions):
        if version.etag == wanted:
            return place
    raise NotFound(
        "No version of this agent has this entity tag.", path=name, hint="See its history for those that are kept."
    )


def _compare(before: Version, after: Version) -> list[Difference]:
    return differences_between(_document(before), _document(after), limits.DIFFERENCES)


def _document(version: Version) -> Any:
    return msgspec.json.decode(version.record)

"""The shape of an ARD trust manifest (ard.md §3): what a verifier needs to be there is there, and is of its type.

Whether its claims hold, and whether it speaks of the entry it stands in (ARD-18), is for trust to say.
"""

from __future__ import annotations

from typing import Final

from waypost import limits
from waypost.model.json import JsonObject, member
from waypost.model.record import find_object, find_objects, find_text, find_texts, need_text

# list in the manifest -> what each item must say, and what it may (ARD-17)
_LISTS: Final = {
    "attestations": (("type", "uri"), ("mediaType", "digest")),
    "provenance": (("relation", "sourceId"), ("sourceDigest",)),
}


def check_manifest(manifest: JsonObject, path: str) -> None:
    need_text(manifest, "identity", path, most=limits.ENDPOINT_CHARS)
    find_text(manifest, "identityType", path, most=limits.TAG_CHARS)
    find_text(manifest, "signature", path, most=limits.DOCUMENT_BYTES)
    for name, (needed, others) in _LISTS.items():
        for item, where in find_objects(manifest, name, path, most=limits.JSON_ARRAY_ITEMS):
            _check_texts(item, where, needed, others)
    schema = find_object(manifest, "trustSchema", path)
    if schema is not None:
        where = member(path, "trustSchema")
        _check_texts(schema, where, ("identifier", "version"), ("governanceUri",))
        find_texts(schema, "verificationMethods", where, most=limits.JSON_ARRAY_ITEMS, chars=limits.ENDPOINT_CHARS)


def _check_texts(item: JsonObject, path: str, needed: tuple[str, ...], others: tuple[str, ...]) -> None:
    for name in needed:
        need_text(item, name, path, most=limits.ENDPOINT_CHARS)
    for name in others:
        find_text(item, name, path, most=limits.ENDPOINT_CHARS)

"""Fetches the documents of agents at a URL: a document, a catalog, or the well-known documents of an origin."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import FetchFailed, MalformedJson, TooLarge, UnknownDialect
from waypost.protocols.dialects import unpack_documents
from waypost.protocols.rtfs.sexpr import is_sexpr_text
from waypost.registry.ports import Fetcher, FetchPurpose, FetchResponse

WELL_KNOWN = (
    "/.well-known/agent-card.json",
    "/.well-known/agent.json",
    "/.well-known/ai-catalog.json",
    "/.well-known/agentframework/v1/agents",
    "/",
)
_CATALOGS = ("ai-catalog.json", "/agents", "/servers")

# Reasons of FetchFailed that describe a network, not a document.
UNREACHABLE = frozenset(("no_address", "dns_failed", "refused", "timed_out", "tls", "protocol"))


async def fetch_documents(
    fetcher: Fetcher, url: str, recognise: Callable[[bytes, str], object]
) -> tuple[FetchResponse, list[bytes]]:
    """The response and the documents in it. Of an origin, the first well-known document that is recognised.

    `recognise` gets a document and its URL, and raises UnknownDialect or MalformedJson for one that is no agent.
    """
    candidates = _candidates(url)
    if len(candidates) == 1:
        fetched = await fetcher.fetch(candidates[0], _purpose(candidates[0]))
        return fetched, _documents(fetched)
    for candidate in candidates:
        try:
            fetched = await fetcher.fetch(candidate, _purpose(candidate))
            documents = _documents(fetched)
            if documents:
                recognise(documents[0], fetched.url)
                return fetched, documents
        except FetchFailed as error:
            if error.details.get("reason") in UNREACHABLE:
                raise
        except (UnknownDialect, MalformedJson):
            continue  # a server may answer every path with some page
    raise FetchFailed(
        "None of the well-known documents was found.",
        path="$.url",
        hint=f"Name a document, or serve one of {', '.join(WELL_KNOWN[:3])}.",
        details={"reason": "not_found"},
    )


def _candidates(url: str) -> list[str]:
    """The URL itself; for a bare host or origin, the well-known paths."""
    text = url if "://" in url or "." not in url.split("/")[0] else f"https://{url}"
    try:
        parts = urlsplit(text)
    except ValueError:
        return [text]
    if parts.path not in ("", "/") or parts.query or parts.fragment or "?" in text:
        return [text]
    return [text.rstrip("/") + path for path in WELL_KNOWN]


def _purpose(url: str) -> FetchPurpose:
    """A catalog may be larger than a card."""
    return "peer" if url.split("?", 1)[0].endswith(_CATALOGS) else "card"


def _documents(fetched: FetchResponse) -> list[bytes]:
    """The documents in a response. Errors quote nothing of an unreadable response (S9)."""
    if not fetched.is_success:
        raise FetchFailed(
            f"The other server answered with status {fetched.status}.",
            path="$.url",
            hint="Check that the document exists.",
            details={"reason": "status", "answered": fetched.status},
        )
    if is_sexpr_text(fetched.body):
        return [fetched.body]
    try:
        packed = unpack_documents(fetched.body, limits.ARD_NESTED_CATALOGS)
    except (msgspec.DecodeError, RecursionError):
        raise FetchFailed(
            "The response is not a document of any dialect.",
            path="$.url",
            hint="Use the URL of a card, a manifest or a catalog.",
            details={"reason": "not_a_document"},
        ) from None
    if packed is None:
        return [_bounded(fetched.body)]
    if len(packed) > limits.FETCH_DOCUMENTS:
        raise TooLarge(
            f"The catalog has {len(packed)} entries; at most {limits.FETCH_DOCUMENTS} can be imported at once.",
            path="$.url",
            hint="Save it as a file and import that.",
        )
    return packed


def _bounded(document: bytes) -> bytes:
    if len(document) > limits.DOCUMENT_BYTES:
        raise TooLarge(f"The document has more than {limits.DOCUMENT_BYTES} bytes.", path="$.url")
    return document

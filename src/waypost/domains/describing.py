"""What an agent says of itself, fetched from where the DNS says, over a connection that is the one which the DNS names.

Knows which documents are wanted, in which order they count (AID-17), and when one must be refused: a digest that differs
(AID-14), another identity than was asked for (C-7, D10), a certificate that no TLSA record names (ADP-12).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.domains.dane import RUNG as DANE_RUNG
from waypost.domains.dane import Dane
from waypost.domains.descriptors import Descriptor, has_usual_type, is_no_document, read_descriptor
from waypost.domains.journal import Journal, Refusal, code_of
from waypost.domains.locating import Located, Service
from waypost.domains.naming import CARD_PATH, DEFAULT_PATH, Asked, find_path, origin
from waypost.domains.ports import DomainFetcher
from waypost.errors import AddressDenied, FetchFailed, InvalidParameter, MalformedJson, RateLimited
from waypost.model.verdict import State, Verdict
from waypost.registry.fetching import Fetched
from waypost.registry.ports import Clock
from waypost.wire.aid import WELL_KNOWN as AID_PATH
from waypost.wire.svcb import CAP, CAP_SHA256, WELL_KNOWN

Role = Literal["capability", "metadata"]
_ALWAYS_FAILED = ("tls",)
_ANSWERED = (
    "status",
    "not_a_document",
    "too_large",
    "encoding",
    "redirect",
)  # there is a server, and another document may be


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One document to fetch. One that is only guessed may be missing."""

    url: str
    role: Role = "metadata"
    guessed: bool = False
    digest: str | None = None


class Describer:
    """Of one resolution."""

    def __init__(self, journal: Journal, fetcher: DomainFetcher, clock: Clock, located: Located) -> None:
        self._journal = journal
        self._fetcher = fetcher
        self._clock = clock
        self._located = located
        self._danes: dict[tuple[str, int], Dane] = {}
        self._is_silent = False  # there is nobody who could have another document
        self._unproven: list[str] = []  # hosts that could not prove who they are
        self._connected: list[tuple[Role, Dane]] = []

    async def describe(self, asked: Asked) -> list[Descriptor]:
        """The documents of the agent, the one that counts most first. Raises Refusal."""
        self._journal.begin_round()
        try:
            found = await self._describe(asked)
        finally:
            await asyncio.gather(*(dane.close() for dane in self._danes.values()))
        if not found and self._unproven:
            reason = f"{self._unproven[0]} could not prove who it is"
            raise Refusal("tls", reason, rung=DANE_RUNG, state="unknown")
        return found

    async def _describe(self, asked: Asked) -> list[Descriptor]:
        located = self._located
        if asked.url:
            return await self._fetch_all(Wanted(url=asked.url))
        if located.how == "txt" and located.txt is not None:
            return await self._fetch_all(Wanted(url=located.txt.metadata_url))
        if located.how is None:
            base = origin(asked.domain, asked.port)
            return await self._guess([base + path for path in (DEFAULT_PATH, CARD_PATH, AID_PATH)])
        for service in located.services[: limits.SVCB_TARGETS]:
            found = await self._of_service(service)
            if found:
                return found
        return []

    def verdict(self) -> Verdict:
        """Of the connection that the agent's own document came over, else of the one that a capability document did."""
        none = Verdict(check=DANE_RUNG, state="not_checked", reason="nothing was connected to", at=self._journal.at)
        failed = [dane.verdict for dane in self._danes.values() if dane.verdict.state == "failed"]
        by_role = {role: dane.verdict for role, dane in reversed(self._connected)}
        return next(iter(failed), by_role.get("metadata") or by_role.get("capability") or none)

    # --- Which documents ---------------------------------------------------------------------------------------------

    async def _of_service(self, service: Service) -> list[Descriptor]:
        """AID-17: an https `cap`, else what `well-known` names, else the usual places."""
        base, record = origin(service.host, service.port), service.binding
        cap = record.text(CAP) if record is not None else None
        digest = (record.text(CAP_SHA256) or "") if record is not None and CAP_SHA256 in record.params else None
        path = self._path(service)
        wanted = []
        if cap is not None and cap.lower().startswith("https://"):
            wanted.append(Wanted(url=cap, role="capability", digest=digest))
        if path is not None:
            wanted.append(Wanted(url=base + path, digest=None if wanted else digest))
        elif wanted and self._located.key is not None:
            wanted.append(Wanted(url=base + DEFAULT_PATH, guessed=True))
        found = await self._fetch_all(*wanted)
        if any(each.is_agent for each in found) or path is not None:
            return found
        paths = (CARD_PATH,) if len(wanted) == 2 else (DEFAULT_PATH, CARD_PATH)
        return [*found, *await self._guess([base + each for each in paths], None if wanted else digest)]

    def _path(self, service: Service) -> str | None:
        """D9: a path that could lead elsewhere spoils its record."""
        stated = service.binding.text(WELL_KNOWN) if service.binding is not None else None
        if service.binding is None or WELL_KNOWN not in service.binding.params:
            return None
        path = find_path(stated or "")
        if path is None:
            raise Refusal("bad_path", "the path in `well-known` is none that is followed")
        return path

    async def _guess(self, urls: Sequence[str], digest: str | None = None) -> list[Descriptor]:
        """The first of the usual places where there is an agent."""
        for url in urls:
            found = await self._fetch_all(Wanted(url=url, guessed=True, digest=digest))
            if found:
                return found
            if self._is_silent:
                break
        return []

    # --- Fetching ----------------------------------------------------------------------------------------------------

    async def _fetch_all(self, *wanted: Wanted) -> list[Descriptor]:
        tasks = [asyncio.create_task(self._fetch(each), name=each.role) for each in wanted]
        try:
            results = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return [found for found in results if found is not None]

    async def _fetch(self, wanted: Wanted) -> Descriptor | None:
        begun = time.perf_counter()
        dane = self._dane(wanted.url)
        self._journal.fetches += 1
        try:
            dane.begin()
            fetched = await self._fetcher.fetch(wanted.url, "descriptor", check=dane.check)
        except (FetchFailed, AddressDenied, InvalidParameter, RateLimited) as error:
            code = "denied" if isinstance(error, AddressDenied) else code_of(error, "bad_address")
            self._tell_failure(wanted, code, error.message, begun)
            if code == "dane":
                raise Refusal(str(error.details.get("code")), dane.verdict.reason, rung=DANE_RUNG) from None
            return None
        self._connected.append((wanted.role, dane))
        return self._take(wanted, fetched, begun)

    def _tell_failure(self, wanted: Wanted, code: str, reason: str, begun: float) -> None:
        state: State = "failed" if code in (*_ALWAYS_FAILED, "dane") else "not_checked" if wanted.guessed else "unknown"
        self._journal.tell(
            _step(wanted),
            state,
            reason,
            code=code,
            took_ms=_since(begun),
            url=wanted.url,
            guessed=wanted.guessed or None,
        )
        self._is_silent = self._is_silent or code not in _ANSWERED
        if code in _ALWAYS_FAILED:
            self._unproven.append(urlsplit(wanted.url).hostname or "")

    def _take(self, wanted: Wanted, fetched: Fetched, begun: float) -> Descriptor | None:
        if not fetched.is_success:
            self._tell_failure(wanted, "status", f"it answered with status {fetched.status}", begun)
            return None
        found = read_descriptor(fetched, wanted.role, self._clock.now())
        told = found.told
        evidence: dict[str, Any] = {"url": told.url, "dialect": told.dialect, "sha256": told.sha256, "size": told.size}
        if wanted.digest is not None and not found.has_digest(wanted.digest):
            reason = "the document is not the one whose digest the DNS gives"
            self._journal.tell(
                _step(wanted), "failed", reason, code="digest_mismatch", took_ms=_since(begun), **evidence
            )
            raise Refusal("digest_mismatch", reason)
        if wanted.guessed and is_no_document(found):
            self._tell_failure(wanted, "not_a_document", "what is there is no document of an agent", begun)
            return None
        if found.trouble is not None:
            return self._refuse(wanted, found, begun)
        self._journal.tell(
            _step(wanted), "passed", took_ms=_since(begun), **evidence, digest="matches" if wanted.digest else None
        )
        self._check_identity(found)
        return found

    def _refuse(self, wanted: Wanted, found: Descriptor, begun: float) -> Descriptor | None:
        trouble = found.trouble
        reason = "it is no JSON object" if trouble is None or isinstance(trouble, MalformedJson) else trouble.message
        self._journal.tell(
            _step(wanted), "failed", reason, code="invalid_document", took_ms=_since(begun), url=found.told.url
        )
        if wanted.role == "capability":  # its format is open (AID-5)
            return msgspec.structs.replace(found, trouble=None)
        raise Refusal("invalid_document", f"the document cannot be used: {reason}", rung="key-verified")

    def _check_identity(self, found: Descriptor) -> None:
        """C-7, D10: a provider's host may speak for many; the document must be of the one that was asked for."""
        if not has_usual_type(found):
            self._journal.warn(f"The document is served as {found.told.media_type or 'nothing'} (ADP-22).")
        stated = found.stated_domain()
        if stated is None:
            return
        if stated != self._located.domain:
            reason = f"the document is of {stated[:253]}, not of {self._located.domain}"
            self._journal.tell("identity", "failed", reason, code="identity_mismatch", domain=stated[:253])
            raise Refusal("identity_mismatch", reason, rung="key-verified")
        self._journal.tell("identity", "passed", domain=stated)

    def _dane(self, url: str) -> Dane:
        """One look-up for each server, however many documents it gives."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or 443
        except ValueError:
            host, port = "", 443
        if (host, port) not in self._danes:
            hosted = host != self._located.domain
            self._danes[host, port] = Dane(self._journal, host, port, leading=self._located.security, hosted=hosted)
        return self._danes[host, port]


def _step(wanted: Wanted) -> str:
    return "capability" if wanted.role == "capability" else "document"


def _since(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1000, 3)

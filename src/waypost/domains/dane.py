"""Whether a connection is the one that the DNS names: TLSA records against the certificate of the very connection (RFC 7671).

The look-up goes side by side with the connection; the request is sent when both are there and agree. The chain of the
certificate is checked by the connection itself, in addition (ADP-54).
"""

from __future__ import annotations

import asyncio
from typing import Any

from waypost import limits
from waypost.domains.ports import DnsLookup, SecurityState, TlsPeer
from waypost.domains.target import tlsa_name
from waypost.domains.trace import ResolutionTrace
from waypost.errors import FetchFailed, InvalidDocument
from waypost.model.verdict import Verdict, VerdictState
from waypost.protocols.dns_aid.tlsa import TlsaRecord, match_any, parse_tlsa

DANE_CHECK = "dane-verified"


class DaneCheck:
    """Of one host and port. `leading` is how far the records are proven that lead there, `hosted` whether that is another's
    host: then a signed TLSA of the host proves nothing of the domain unless those records are signed too."""

    def __init__(self, journal: ResolutionTrace, host: str, port: int, *, leading: SecurityState, hosted: bool) -> None:
        self._journal = journal
        self._name = tlsa_name(host, port)
        self._leading = leading
        self._hosted = hosted
        self._is_told = False
        self._looking: asyncio.Task[DnsLookup] | None = None
        self.verdict = self._told("not_checked", "nothing was connected to")

    def begin(self) -> None:
        """Ask, without waiting."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._journal.ask_alongside((self._name, "TLSA")), name="tlsa")

    async def close(self) -> None:
        if self._looking is not None and not self._looking.done():
            self._looking.cancel()
            await asyncio.wait((self._looking,))

    async def check(self, peer: TlsPeer) -> None:
        """Raises FetchFailed when the peer is not the one, or that cannot be told in a signed domain."""
        self.begin()
        if self._looking is None:
            return
        found = await self._looking
        self.verdict, told = self._judge(found, peer)
        if not self._is_told:  # one look-up, however many connections
            self._is_told = True
            self._journal.add_lookup(found, self.verdict.reason, code=self._failure_code(), **told)
        if self.verdict.state == "failed":
            raise FetchFailed(
                f"The connection is dropped: {self.verdict.reason}.",
                path="tlsa",
                hint=f"Compare the certificate with the TLSA records at {self._name}.",
                details={"reason": "dane", "code": self.verdict.evidence.get("code", "")},
            )

    def _judge(self, found: DnsLookup, peer: TlsPeer) -> tuple[Verdict, dict[str, Any]]:
        if found.outcome == "failed" or found.security == "bogus":
            return self._without_answer(found), {}
        if found.outcome != "found":
            return self._told("not_checked", "no TLSA record is there"), {}
        if found.security != "secure":
            reason = f"the TLSA records are not signed ({found.security}), so they prove nothing"
            return self._told("unknown", reason, code="tlsa_insecure"), {}
        records = _parse_tlsa_records(found)
        result, record = match_any(records, peer.chain)
        told = {
            "records": len(found.records),
            "tlsa": str(record) if record is not None else None,
            "tls": peer.tls_version,
        }
        if result == "mismatch":
            return self._told("failed", "the certificate matches no TLSA record", code="dane_mismatch", **told), told
        if result == "unusable":
            return self._told("unknown", "no TLSA record can be used", code="tlsa_unusable", **told), told
        if self._hosted and self._leading != "secure":
            reason = "the certificate matches, but the record that leads to this host is not signed"
            return self._told("unknown", reason, code="leading_insecure", **told), told
        return self._told("passed", "the certificate matches a signed TLSA record", **told), told

    def _failure_code(self) -> str:
        return str(self.verdict.evidence.get("code", "")) if self.verdict.state == "failed" else ""

    def _without_answer(self, found: DnsLookup) -> Verdict:
        """D3: where records are signed, one that cannot be had may have been taken away."""
        reason = f"the TLSA records could not be looked up: {found.reason or found.outcome}"
        if found.security == "bogus":
            return self._told("failed", reason, code="bogus")
        return self._told("failed" if self._leading == "secure" else "unknown", reason, code="dns_failed")

    def _told(self, state: VerdictState, reason: str, **evidence: Any) -> Verdict:
        known = {name: value for name, value in {"name": self._name, **evidence}.items() if value is not None}
        return Verdict(check=DANE_CHECK, state=state, reason=reason, evidence=known, at=self._journal.at)


def _parse_tlsa_records(found: DnsLookup) -> list[TlsaRecord]:
    records = []
    for data in found.records[: limits.TLSA_RECORDS]:
        try:
            records.append(parse_tlsa(data))
        except InvalidDocument:
            continue
    return records

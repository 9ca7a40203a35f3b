"""What a way came to: everything that was found, as one resolution. Asks nobody."""

from __future__ import annotations

import msgspec

from waypost.domains.descriptors import Descriptor
from waypost.domains.journal import Journal, Refusal
from waypost.domains.locating import Located
from waypost.domains.naming import Asked
from waypost.model.resolution import Depth, How, Outcome, Resolution, TrustLevel, level_of_rungs
from waypost.model.verdict import Verdict


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A resolution with the documents that it rests on, byte for byte."""

    resolution: Resolution
    documents: tuple[Descriptor, ...] = ()
    located: Located | None = None


class Way(msgspec.Struct, kw_only=True):
    """How far one resolution has come. `refusal` is where it ended early."""

    asked: Asked
    depth: Depth
    journal: Journal
    located: Located | None = None
    verdicts: list[Verdict] = []
    documents: list[Descriptor] = []
    refusal: Refusal | None = None
    signature: Verdict | None = None  # of the record itself, where it carries one

    def found(self) -> Found:
        return Found(resolution=self._told(), documents=tuple(self.documents), located=self.located)

    def _told(self) -> Resolution:
        place = self.located or Located(domain=self.asked.domain)
        told = [each.told for each in self.documents]
        outcome, code, reason = self._outcome()
        return Resolution(
            name=self.asked.text,
            domain=place.domain,
            agent=f"agent:{place.domain}",
            outcome=outcome,
            level=self._level(outcome),
            verdicts=(*self.verdicts, *(() if self.signature is None else (self.signature,))),
            reason=reason,
            code=code,
            how=self._how(),
            depth=self.depth,
            dnssec="bogus" if code == "bogus" else place.security,
            endpoints=place.endpoints,
            document=next((each.told for each in self.documents if each.is_agent), told[0] if told else None),
            documents=tuple(told),
            capabilities=self._capabilities(place),
            key=place.key,
            steps=tuple(self.journal.steps),
            warnings=tuple(self.journal.warnings),
            ttl_seconds=self._ttl() if outcome == "resolved" else 0,
            cost=self.journal.cost(),
            at=self.journal.at,
        )

    def _capabilities(self, place: Located) -> tuple[str, ...]:
        """As the document says that describes the agent, else as the DNS does (AID-17)."""
        described = next((each for each in self.documents if each.is_agent), None)
        if described is not None:
            return described.capabilities()
        return place.companion.capabilities if place.companion is not None else ()

    def _how(self) -> How | None:
        if self.asked.url and self.documents:
            return "url"
        by_dns = self.located.how if self.located is not None else None
        return by_dns or ("well-known" if self.documents else None)

    def _outcome(self) -> tuple[Outcome, str, str]:
        refusal = self.refusal
        if refusal is not None and refusal.code == "not_offered":
            return "not_found", refusal.code, refusal.reason
        if refusal is not None:
            return "failed", refusal.code, refusal.reason
        fallen = next((verdict for verdict in self.verdicts if verdict.state == "failed"), None)
        if fallen is not None:
            return "failed", str(fallen.evidence.get("code", "")), fallen.reason
        if self._how() is None:
            return "not_found", "no_agent", "there is no agent of this name"
        return "resolved", "", ""

    def _level(self, outcome: Outcome) -> TrustLevel:
        """What failed has no level; what could not be had keeps that of the rungs below."""
        kept = outcome == "resolved" or (self.refusal is not None and self.refusal.state != "failed")
        return level_of_rungs(self.verdicts) if kept else "unverified"

    def _ttl(self) -> int:
        """As long as its records and its documents hold."""
        ages = [each.told.max_age_seconds for each in self.documents]
        if self.located is not None and self.located.how is not None:
            ages.append(self.located.ttl)
        return min(ages, default=0)

"""The rungs of trust, from what was found: dns-verified, dane-verified, key-verified, peer-verified (ADP-48).

Each is a verdict with its evidence. Nothing that a document says of itself raises one; "not checked", "unknown" and "failed"
are three things.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from waypost.domains.descriptors import Descriptor
from waypost.domains.journal import Journal, Refusal
from waypost.domains.locating import Located
from waypost.errors import InvalidKey
from waypost.model.resolution import RUNGS, AgentKey
from waypost.model.verdict import State, Verdict
from waypost.trust.checks.adp import KEY_CHECK, PROOF_CHECK, check_adp, parse_full

DNS, DANE, KEY, PEER = RUNGS
UNPINNED: Final = "unpinned"
_NOT_REACHED: Final = "not reached"
_CONVERSATION: Final = "only a conversation proves it"


def dns_rung(located: Located, journal: Journal) -> Verdict:
    """The record was resolved. What DNSSEC says of it is evidence, not the rung."""
    if located.how is None:
        return rung(DNS, "not_checked", "no record of an agent is in the DNS", journal)
    return rung(DNS, "passed", "", journal, how=located.how, dnssec=located.security, domain=located.domain)


def key_rung(located: Located, documents: Sequence[Descriptor], journal: Journal, now: float) -> Verdict:
    """The key of the document hashes to the fingerprint that the DNS gives (ADP-51). Without a fingerprint nothing is
    wrong, and nothing proven: unpinned (C-2)."""
    verdict = _judge(located, documents, journal, now)
    code = str(verdict.evidence.get("code", ""))
    told = {name: value for name, value in verdict.evidence.items() if name != "code"}
    journal.tell("key", verdict.state, verdict.reason, code=code, **told)
    return verdict


def _judge(located: Located, documents: Sequence[Descriptor], journal: Journal, now: float) -> Verdict:
    if located.key_trouble is not None:
        code, reason = located.key_trouble
        return rung(KEY, "unknown" if code == "unknown" else "failed", reason, journal, code=code)
    document = next((each for each in documents if each.told.dialect == "adp"), None)
    pinned = located.key
    if located.how is None and not documents:
        return unreached(journal, KEY)[0]
    if pinned is None:
        return rung(KEY, "unknown", "the DNS gives no fingerprint of the agent's key", journal, code=UNPINNED)
    evidence: dict[str, Any] = {"fingerprint": pinned.fingerprint, "source": pinned.source, "dnssec": pinned.dnssec}
    if document is None or document.parsed is None:
        return rung(
            KEY, "unknown", "no document with the agent's key was found", journal, code="no_document", **evidence
        )
    checks = {
        each.check: each for each in check_adp(document.parsed, (), now, fingerprints={pinned.fingerprint: "dns"})
    }
    key, proof = checks[KEY_CHECK], checks.get(PROOF_CHECK)
    if key.state == "passed" and proof is not None and proof.state == "failed":
        return rung(KEY, "failed", proof.reason, journal, code="bad_proof", **evidence)
    if key.state == "passed":
        return rung(KEY, "passed", "the key hashes to the fingerprint in the DNS", journal, **evidence, **_id(key))
    if key.state == "failed":
        reason = "the key of the document is not the one that the DNS names"
        return rung(KEY, "failed", reason, journal, code="key_mismatch", found=key.reason, **evidence, **_id(key))
    return _without_full_key(document, pinned, evidence, journal)


def _without_full_key(document: Descriptor, pinned: AgentKey, evidence: dict[str, Any], journal: Journal) -> Verdict:
    """A fingerprint alone is a claim; one that differs is a contradiction all the same."""
    stated = ((document.parsed or {}).get("identity") or {}).get("publicKey") or {}
    if isinstance(stated, dict) and stated.get("fingerprint") not in (None, pinned.fingerprint):
        reason = "the fingerprint of the document is not the one that the DNS gives"
        return rung(KEY, "failed", reason, journal, code="key_mismatch", **evidence)
    return rung(KEY, "unknown", "the document holds no full key to hash", journal, code="no_full_key", **evidence)


def with_public_key(key: AgentKey | None, documents: Sequence[Descriptor], verdict: Verdict) -> AgentKey | None:
    """The key itself, once it is proven to be the one."""
    if key is None or verdict.state != "passed":
        return key
    for each in documents:
        if each.told.dialect == "adp" and each.parsed is not None:
            try:
                full = parse_full(each.parsed["identity"]["publicKey"].get("full"))
            except InvalidKey:
                continue
            if full is not None:
                pem = full.native.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
                return msgspec.structs.replace(key, public_key=pem)
    return key


def rung(check: str, state: State, reason: str, journal: Journal, **evidence: Any) -> Verdict:
    return Verdict(check=check, state=state, reason=reason, evidence=evidence, at=journal.at)


def unreached(journal: Journal, *names: str) -> list[Verdict]:
    return [
        rung(name, "not_checked", _CONVERSATION if name == PEER else _NOT_REACHED, journal) for name in names or RUNGS
    ]


def refused(refusal: Refusal, reached: Sequence[Verdict], journal: Journal) -> list[Verdict]:
    """The rungs where the way ended: those below stand, that of the refusal fell, those above were not reached."""
    known = {verdict.check: verdict for verdict in reached}
    fallen = known.get(refusal.rung)
    if fallen is None or fallen.state != "failed":
        known[refusal.rung] = rung(refusal.rung, refusal.state, refusal.reason, journal, code=refusal.code)
    return [known.get(name) or unreached(journal, name)[0] for name in RUNGS]


def _id(verdict: Verdict) -> dict[str, Any]:
    return {"key_id": verdict.evidence["key_id"]} if "key_id" in verdict.evidence else {}

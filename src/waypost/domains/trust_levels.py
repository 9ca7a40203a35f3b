"""The rungs of trust, from what was found: dns-verified, dane-verified, key-verified, peer-verified (ADP-48).

Each is a verdict with its evidence. Nothing that a document says of itself raises one; "not checked", "unknown" and "failed"
are three things.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from waypost.domains.descriptor import Descriptor
from waypost.domains.dns_lookup import AgentLocation
from waypost.domains.ports import DomainFetcher
from waypost.domains.target import agent_txt_name
from waypost.domains.trace import ResolutionRefused, ResolutionTrace, error_code
from waypost.errors import AddressDenied, FetchFailed, InvalidKey, InvalidParameter, RateLimited
from waypost.model.resolution import VERIFIED_LEVELS, AgentKey
from waypost.model.verdict import Verdict, VerdictState
from waypost.protocols.dns_aid.txt_records import AidRecord
from waypost.trust.checks.adp import KEY_CHECK, PROOF_CHECK, check_adp, parse_full_key
from waypost.trust.checks.aid import Aid1Challenge, Aid2Challenge, parse_aid1_key, parse_aid2_key
from waypost.trust.keys.public_key import PublicKey

DNS_LEVEL, DANE_LEVEL, KEY_LEVEL, PEER_LEVEL = VERIFIED_LEVELS

UNPINNED: Final = "unpinned"

_NOT_REACHED: Final = "not reached"

_CONVERSATION: Final = "only a conversation proves it"


def check_dns_level(located: AgentLocation, journal: ResolutionTrace) -> Verdict:
    """The record was resolved. What DNSSEC says of it is evidence, not the rung."""
    if located.how is None:
        return level_verdict(DNS_LEVEL, "not_checked", "no record of an agent is in the DNS", journal)
    return level_verdict(
        DNS_LEVEL, "passed", "", journal, how=located.how, dnssec=located.security, domain=located.domain
    )


def check_key_level(
    located: AgentLocation, documents: Sequence[Descriptor], journal: ResolutionTrace, now: float
) -> Verdict:
    """The key of the document hashes to the fingerprint that the DNS gives (ADP-51). Without a fingerprint nothing is
    wrong, and nothing proven: unpinned (C-2)."""
    verdict = _check_key(located, documents, journal, now)
    code = str(verdict.evidence.get("code", ""))
    told = {name: value for name, value in verdict.evidence.items() if name != "code"}
    journal.tell("key", verdict.state, verdict.reason, code=code, **told)
    return verdict


def _check_key(
    located: AgentLocation, documents: Sequence[Descriptor], journal: ResolutionTrace, now: float
) -> Verdict:
    if located.key_error is not None:
        code, reason = located.key_error
        return level_verdict(KEY_LEVEL, "unknown" if code == "unknown" else "failed", reason, journal, code=code)
    document = next((each for each in documents if each.told.dialect == "adp"), None)
    pinned = located.key
    if located.how is None and not documents:
        return unreached_levels(journal, KEY_LEVEL)[0]
    if pinned is None:
        return level_verdict(
            KEY_LEVEL, "unknown", "the DNS gives no fingerprint of the agent's key", journal, code=UNPINNED
        )
    evidence: dict[str, Any] = {"fingerprint": pinned.fingerprint, "source": pinned.source, "dnssec": pinned.dnssec}
    if document is None or document.parsed is None:
        return level_verdict(
            KEY_LEVEL, "unknown", "no document with the agent's key was found", journal, code="no_document", **evidence
        )
    checks = {
        each.check: each for each in check_adp(document.parsed, (), now, fingerprints={pinned.fingerprint: "dns"})
    }
    key, proof = checks[KEY_CHECK], checks.get(PROOF_CHECK)
    if key.state == "passed" and proof is not None and proof.state == "failed":
        return level_verdict(KEY_LEVEL, "failed", proof.reason, journal, code="bad_proof", **evidence)
    if key.state == "passed":
        return level_verdict(
            KEY_LEVEL,
            "passed",
            "the key hashes to the fingerprint in the DNS",
            journal,
            **evidence,
            **_key_id_evidence(key),
        )
    if key.state == "failed":
        reason = "the key of the document is not the one that the DNS names"
        return level_verdict(
            KEY_LEVEL,
            "failed",
            reason,
            journal,
            code="key_mismatch",
            found=key.reason,
            **evidence,
            **_key_id_evidence(key),
        )
    return _without_full_key(document, pinned, evidence, journal)


def _without_full_key(
    document: Descriptor, pinned: AgentKey, evidence: dict[str, Any], journal: ResolutionTrace
) -> Verdict:
    """A fingerprint alone is a claim; one that differs is a contradiction all the same."""
    stated = ((document.parsed or {}).get("identity") or {}).get("publicKey") or {}
    if isinstance(stated, dict) and stated.get("fingerprint") not in (None, pinned.fingerprint):
        reason = "the fingerprint of the document is not the one that the DNS gives"
        return level_verdict(KEY_LEVEL, "failed", reason, journal, code="key_mismatch", **evidence)
    return level_verdict(
        KEY_LEVEL, "unknown", "the document holds no full key to hash", journal, code="no_full_key", **evidence
    )


def with_public_key(key: AgentKey | None, documents: Sequence[Descriptor], verdict: Verdict) -> AgentKey | None:
    """The key itself, once it is proven to be the one."""
    if key is None or verdict.state != "passed":
        return key
    for each in documents:
        if each.told.dialect == "adp" and each.parsed is not None:
            try:
                full = parse_full_key(each.parsed["identity"]["publicKey"].get("full"))
            except InvalidKey:
                continue
            if full is not None:
                pem = full.native.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
                return msgspec.structs.replace(key, public_key=pem)
    return key


def level_verdict(check: str, state: VerdictState, reason: str, journal: ResolutionTrace, **evidence: Any) -> Verdict:
    return Verdict(check=check, state=state, reason=reason, evidence=evidence, at=journal.at)


def unreached_levels(journal: ResolutionTrace, *names: str) -> list[Verdict]:
    return [
        level_verdict(name, "not_checked", _CONVERSATION if name == PEER_LEVEL else _NOT_REACHED, journal)
        for name in names or VERIFIED_LEVELS
    ]


def levels_after_refusal(
    refusal: ResolutionRefused, reached: Sequence[Verdict], journal: ResolutionTrace
) -> list[Verdict]:
    """The rungs where the way ended: those below stand, that of the refusal fell, those above were not reached."""
    known = {verdict.check: verdict for verdict in reached}
    fallen = known.get(refusal.rung)
    if fallen is None or fallen.state != "failed":
        known[refusal.rung] = level_verdict(refusal.rung, refusal.state, refusal.reason, journal, code=refusal.code)
    return [known.get(name) or unreached_levels(journal, name)[0] for name in VERIFIED_LEVELS]


def _key_id_evidence(verdict: Verdict) -> dict[str, Any]:
    return {"key_id": verdict.evidence["key_id"]} if "key_id" in verdict.evidence else {}


# ---- The rung `key-verified` of an agent that AID names: the key stands in the DNS, and the server at its address proves to
# hold it.


async def verify_aid_key(
    located: AgentLocation, aid: AidRecord, journal: ResolutionTrace, fetcher: DomainFetcher, now: float
) -> tuple[Verdict, AgentLocation]:
    """The verdict, and what is known of the key by then."""
    if not aid.pka:
        return level_verdict(KEY_LEVEL, "unknown", "the AID record gives no key", journal, code=UNPINNED), located
    if not aid.uri.lower().startswith("https://"):
        reason = f"the key of {aid.version} over {aid.proto} is not asked for a proof"
        return level_verdict(KEY_LEVEL, "not_checked", reason, journal), located
    try:
        key, challenge = _make_challenge(aid, now)
    except InvalidKey as error:
        return level_verdict(KEY_LEVEL, "failed", error.message, journal, code="bad_key"), located
    source = agent_txt_name(located.domain)
    evidence = {"key_id": key.key_id, "source": source, "dnssec": located.security, "url": aid.uri}
    pinned = AgentKey(fingerprint=key.fingerprint() or "", source=source, dnssec=located.security)
    journal.fetches += 1
    try:
        answer = await fetcher.send(aid.uri, "descriptor", method="GET", headers=challenge.headers)
    except (FetchFailed, AddressDenied, InvalidParameter, RateLimited) as error:
        code = "denied" if isinstance(error, AddressDenied) else error_code(error, "bad_address")
        verdict = level_verdict(KEY_LEVEL, "unknown", error.message, journal, code=code, **evidence)
        return verdict, msgspec.structs.replace(located, key=pinned)
    fault = challenge.find_error(answer.status, answer.headers, now)
    if fault is not None:
        verdict = level_verdict(
            KEY_LEVEL, "failed", f"the key is not proven: {fault}", journal, code="bad_proof", **evidence
        )
        return verdict, msgspec.structs.replace(located, key=pinned)
    proven = msgspec.structs.replace(pinned, public_key=key.pem())
    verdict = level_verdict(KEY_LEVEL, "passed", "the server holds the key that the DNS names", journal, **evidence)
    return verdict, msgspec.structs.replace(located, key=proven)


def _make_challenge(aid: AidRecord, now: float) -> tuple[PublicKey, Aid2Challenge | Aid1Challenge]:
    """In the way of its version."""
    nonce = secrets.token_urlsafe(32)
    if aid.version == "aid2":
        key = parse_aid2_key(aid.pka)
        return key, Aid2Challenge(key, nonce, aid.uri, _authority(aid.uri))
    key = parse_aid1_key(aid.pka)
    return key, Aid1Challenge(key, aid.kid, nonce, aid.uri, _authority(aid.uri), now)


def _authority(url: str) -> str:
    """RFC 9421 §2.2.3: in lower case, without the usual port."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    return host if parts.port in (None, 443) else f"{host}:{parts.port}"

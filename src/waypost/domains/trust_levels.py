"""The trust levels of a resolution: dns-verified, dane-verified, key-verified, peer-verified (ADP-48).

Each level is a verdict with its evidence. No claim of a document about itself raises a level. "not checked", "unknown" and
"failed" are different states.
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

_PEER_REASON: Final = "only a conversation proves it"


def check_dns_level(location: AgentLocation, trace: ResolutionTrace) -> Verdict:
    """Whether the DNS names the agent. The DNSSEC state is evidence, not part of the level."""
    if location.how is None:
        return level_verdict(DNS_LEVEL, "not_checked", "no record of an agent is in the DNS", trace)
    return level_verdict(
        DNS_LEVEL, "passed", "", trace, how=location.how, dnssec=location.security, domain=location.domain
    )


def check_key_level(
    location: AgentLocation, documents: Sequence[Descriptor], trace: ResolutionTrace, now: float
) -> Verdict:
    """Compare the key of the document with the fingerprint in the DNS (ADP-51). Without a fingerprint the state is unknown:
    unpinned (C-2)."""
    verdict = _check_key(location, documents, trace, now)
    code = str(verdict.evidence.get("code", ""))
    evidence = {name: value for name, value in verdict.evidence.items() if name != "code"}
    trace.add_step("key", verdict.state, verdict.reason, code=code, **evidence)
    return verdict


def _check_key(location: AgentLocation, documents: Sequence[Descriptor], trace: ResolutionTrace, now: float) -> Verdict:
    if location.key_error is not None:
        code, reason = location.key_error
        return level_verdict(KEY_LEVEL, "unknown" if code == "unknown" else "failed", reason, trace, code=code)
    document = next((each for each in documents if each.summary.dialect == "adp"), None)
    pinned = location.key
    if location.how is None and not documents:
        return unreached_levels(trace, KEY_LEVEL)[0]
    if pinned is None:
        return level_verdict(
            KEY_LEVEL, "unknown", "the DNS has no fingerprint of the agent's key", trace, code=UNPINNED
        )
    evidence: dict[str, Any] = {"fingerprint": pinned.fingerprint, "source": pinned.source, "dnssec": pinned.dnssec}
    if document is None or document.parsed is None:
        return level_verdict(
            KEY_LEVEL, "unknown", "no document with the agent's key was found", trace, code="no_document", **evidence
        )
    checks = {
        each.check: each for each in check_adp(document.parsed, (), now, fingerprints={pinned.fingerprint: "dns"})
    }
    key, proof = checks[KEY_CHECK], checks.get(PROOF_CHECK)
    if key.state == "passed" and proof is not None and proof.state == "failed":
        return level_verdict(KEY_LEVEL, "failed", proof.reason, trace, code="bad_proof", **evidence)
    if key.state == "passed":
        return level_verdict(
            KEY_LEVEL,
            "passed",
            "the key hashes to the fingerprint in the DNS",
            trace,
            **evidence,
            **_key_id_evidence(key),
        )
    if key.state == "failed":
        reason = "the key of the document does not match the fingerprint in the DNS"
        return level_verdict(
            KEY_LEVEL,
            "failed",
            reason,
            trace,
            code="key_mismatch",
            found=key.reason,
            **evidence,
            **_key_id_evidence(key),
        )
    return _without_full_key(document, pinned, evidence, trace)


def _without_full_key(
    document: Descriptor, pinned: AgentKey, evidence: dict[str, Any], trace: ResolutionTrace
) -> Verdict:
    """A fingerprint in the document proves nothing, but a different one is a contradiction."""
    stated = ((document.parsed or {}).get("identity") or {}).get("publicKey") or {}
    if isinstance(stated, dict) and stated.get("fingerprint") not in (None, pinned.fingerprint):
        reason = "the fingerprint of the document differs from the one in the DNS"
        return level_verdict(KEY_LEVEL, "failed", reason, trace, code="key_mismatch", **evidence)
    return level_verdict(
        KEY_LEVEL, "unknown", "the document contains no full key", trace, code="no_full_key", **evidence
    )


def with_public_key(key: AgentKey | None, documents: Sequence[Descriptor], verdict: Verdict) -> AgentKey | None:
    """The key with its PEM, once it is proven."""
    if key is None or verdict.state != "passed":
        return key
    for each in documents:
        if each.summary.dialect == "adp" and each.parsed is not None:
            try:
                full = parse_full_key(each.parsed["identity"]["publicKey"].get("full"))
            except InvalidKey:
                continue
            if full is not None:
                pem = full.native.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
                return msgspec.structs.replace(key, public_key=pem)
    return key


def level_verdict(check: str, state: VerdictState, reason: str, trace: ResolutionTrace, **evidence: Any) -> Verdict:
    return Verdict(check=check, state=state, reason=reason, evidence=evidence, at=trace.at)


def unreached_levels(trace: ResolutionTrace, *names: str) -> list[Verdict]:
    return [
        level_verdict(name, "not_checked", _PEER_REASON if name == PEER_LEVEL else _NOT_REACHED, trace)
        for name in names or VERIFIED_LEVELS
    ]


def levels_after_refusal(
    refusal: ResolutionRefused, reached: Sequence[Verdict], trace: ResolutionTrace
) -> list[Verdict]:
    """The level of the refusal fails; those below keep their state, those above are not reached."""
    levels = {verdict.check: verdict for verdict in reached}
    current = levels.get(refusal.level)
    if current is None or current.state != "failed":
        levels[refusal.level] = level_verdict(refusal.level, refusal.state, refusal.reason, trace, code=refusal.code)
    return [levels.get(name) or unreached_levels(trace, name)[0] for name in VERIFIED_LEVELS]


def _key_id_evidence(verdict: Verdict) -> dict[str, Any]:
    return {"key_id": verdict.evidence["key_id"]} if "key_id" in verdict.evidence else {}


async def verify_aid_key(
    location: AgentLocation, aid: AidRecord, trace: ResolutionTrace, fetcher: DomainFetcher, now: float
) -> tuple[Verdict, AgentLocation]:
    """Level `key-verified` of an AID record: its server signs a challenge with the key in the DNS. Returns the location with the
    key."""
    if not aid.pka:
        return level_verdict(KEY_LEVEL, "unknown", "the AID record has no key", trace, code=UNPINNED), location
    if not aid.uri.lower().startswith("https://"):
        reason = f"{aid.version} over {aid.proto} has no proof of the key"
        return level_verdict(KEY_LEVEL, "not_checked", reason, trace), location
    try:
        key, challenge = _make_challenge(aid, now)
    except InvalidKey as error:
        return level_verdict(KEY_LEVEL, "failed", error.message, trace, code="bad_key"), location
    source = agent_txt_name(location.domain)
    evidence = {"key_id": key.key_id, "source": source, "dnssec": location.security, "url": aid.uri}
    pinned = AgentKey(fingerprint=key.fingerprint() or "", source=source, dnssec=location.security)
    trace.fetches += 1
    try:
        response = await fetcher.send(aid.uri, "descriptor", method="GET", headers=challenge.headers)
    except (FetchFailed, AddressDenied, InvalidParameter, RateLimited) as error:
        code = "denied" if isinstance(error, AddressDenied) else error_code(error, "bad_address")
        verdict = level_verdict(KEY_LEVEL, "unknown", error.message, trace, code=code, **evidence)
        return verdict, msgspec.structs.replace(location, key=pinned)
    error_text = challenge.find_error(response.status, response.headers, now)
    if error_text is not None:
        verdict = level_verdict(
            KEY_LEVEL, "failed", f"the key is not proven: {error_text}", trace, code="bad_proof", **evidence
        )
        return verdict, msgspec.structs.replace(location, key=pinned)
    proven = msgspec.structs.replace(pinned, public_key=key.pem())
    verdict = level_verdict(KEY_LEVEL, "passed", "the server has the key in the DNS", trace, **evidence)
    return verdict, msgspec.structs.replace(location, key=proven)


def _make_challenge(aid: AidRecord, now: float) -> tuple[PublicKey, Aid2Challenge | Aid1Challenge]:
    nonce = secrets.token_urlsafe(32)
    if aid.version == "aid2":
        key = parse_aid2_key(aid.pka)
        return key, Aid2Challenge(key, nonce, aid.uri, _authority(aid.uri))
    key = parse_aid1_key(aid.pka)
    return key, Aid1Challenge(key, aid.kid, nonce, aid.uri, _authority(aid.uri), now)


def _authority(url: str) -> str:
    """RFC 9421 §2.2.3: in lower case, without the default port."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    return host if parts.port in (None, 443) else f"{host}:{parts.port}"

"""The rung `key-verified` of an agent that AID names: the key stands in the DNS, and the server at its address proves to
hold it.
"""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

import msgspec

from waypost.domains.journal import Journal, code_of
from waypost.domains.ladder import KEY, UNPINNED, rung
from waypost.domains.locating import Located
from waypost.domains.naming import agent_txt_name
from waypost.domains.ports import DomainFetcher
from waypost.errors import AddressDenied, FetchFailed, InvalidKey, InvalidParameter, RateLimited
from waypost.model.resolution import AgentKey
from waypost.model.verdict import Verdict
from waypost.trust.aid1_proof import FirstChallenge, parse_multibase
from waypost.trust.aid_proof import Challenge, parse_pka
from waypost.trust.keys import PublicKey
from waypost.wire.aid import AidRecord


async def prove_key(
    located: Located, aid: AidRecord, journal: Journal, fetcher: DomainFetcher, now: float
) -> tuple[Verdict, Located]:
    """The verdict, and what is known of the key by then."""
    if not aid.pka:
        return rung(KEY, "unknown", "the AID record gives no key", journal, code=UNPINNED), located
    if not aid.uri.lower().startswith("https://"):
        reason = f"the key of {aid.version} over {aid.proto} is not asked for a proof"
        return rung(KEY, "not_checked", reason, journal), located
    try:
        key, challenge = _challenge(aid, now)
    except InvalidKey as error:
        return rung(KEY, "failed", error.message, journal, code="bad_key"), located
    source = agent_txt_name(located.domain)
    evidence = {"key_id": key.key_id, "source": source, "dnssec": located.security, "url": aid.uri}
    pinned = AgentKey(fingerprint=key.fingerprint() or "", source=source, dnssec=located.security)
    journal.fetches += 1
    try:
        answer = await fetcher.send(aid.uri, "descriptor", method="GET", headers=challenge.headers)
    except (FetchFailed, AddressDenied, InvalidParameter, RateLimited) as error:
        code = "denied" if isinstance(error, AddressDenied) else code_of(error, "bad_address")
        verdict = rung(KEY, "unknown", error.message, journal, code=code, **evidence)
        return verdict, msgspec.structs.replace(located, key=pinned)
    fault = challenge.find_fault(answer.status, answer.headers, now)
    if fault is not None:
        verdict = rung(KEY, "failed", f"the key is not proven: {fault}", journal, code="bad_proof", **evidence)
        return verdict, msgspec.structs.replace(located, key=pinned)
    proven = msgspec.structs.replace(pinned, public_key=key.pem())
    verdict = rung(KEY, "passed", "the server holds the key that the DNS names", journal, **evidence)
    return verdict, msgspec.structs.replace(located, key=proven)


def _challenge(aid: AidRecord, now: float) -> tuple[PublicKey, Challenge | FirstChallenge]:
    """In the way of its version."""
    nonce = secrets.token_urlsafe(32)
    if aid.version == "aid2":
        key = parse_pka(aid.pka)
        return key, Challenge(key, nonce, aid.uri, _authority(aid.uri))
    key = parse_multibase(aid.pka)
    return key, FirstChallenge(key, aid.kid, nonce, aid.uri, _authority(aid.uri), now)


def _authority(url: str) -> str:
    """RFC 9421 §2.2.3: in lower case, without the usual port."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    return host if parts.port in (None, 443) else f"{host}:{parts.port}"

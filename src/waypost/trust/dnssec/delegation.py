"""From a zone to the next: the DS records that the parent signed, and the keys that the child shows for them (RFC 4035 §5.2)."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence

import dns.dnssec
import dns.name
from dns.dnssectypes import DSDigest
from dns.rdtypes.ANY.DNSKEY import DNSKEY
from dns.rdtypes.ANY.DS import DS

from waypost.trust.dnssec.judgement import Judgement, bogus, insecure
from waypost.trust.dnssec.rules import SHA1, Effort, Rules
from waypost.trust.dnssec.signatures import Signed, Zone, by_tag, verify, zone_keys


class Entry(Zone, frozen=True, kw_only=True):
    """The keys of a zone, and for how long they are known."""

    ttl: int


def usable(records: Iterable[object], rules: Rules) -> tuple[DS, ...]:
    """DS records that can be followed. SHA-1 does not count beside better (RFC 4509 §3)."""
    known = [row for row in records if isinstance(row, DS) and _is_known(row, rules)]
    better = [row for row in known if row.digest_type != SHA1]
    return tuple(better or known)


def enter(
    name: dns.name.Name, records: Sequence[DS], keys: Signed, now: float, effort: Effort, rules: Rules
) -> Entry | Judgement:
    """The keys of a zone, by the DS records (or the anchor) that stand for it."""
    followed = usable(records, rules)
    if not followed:
        return insecure(f"{name} is signed by nothing but unknown algorithms")
    if len(keys.rrset) > rules.keys:
        return bogus(f"{name} shows more keys than any zone needs")
    own = zone_keys(keys.rrset)
    matching = tuple(key for key in own if _is_named(name, key, followed, rules))
    if not matching:
        return bogus(f"no key of {name} fits the DS records that stand for it")
    proven = verify(keys, Zone(name=name, keys=by_tag(matching)), now, effort, rules)
    if isinstance(proven, Judgement):
        return proven
    if proven.encloser is not None:
        return bogus(f"the keys of {name} come from a wildcard")
    return Entry(name=name, keys=by_tag(own), ttl=proven.ttl)


def digest(name: dns.name.Name, key: DNSKEY, kind: int) -> DS:
    return dns.dnssec.make_ds(name, key, DSDigest.make(kind), policy=dns.dnssec.allow_all_policy)


def _is_known(row: DS, rules: Rules) -> bool:
    return row.digest_type in rules.digests and row.algorithm in rules.algorithms


def _is_named(name: dns.name.Name, key: DNSKEY, records: Sequence[DS], rules: Rules) -> bool:
    tag = dns.dnssec.key_id(key)
    close = [row for row in records if row.key_tag == tag and row.algorithm == key.algorithm]
    return any(
        hmac.compare_digest(digest(name, key, row.digest_type).digest, row.digest) for row in close[: rules.signatures]
    )

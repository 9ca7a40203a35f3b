"""A small tree of zones below `test.`, each valid or broken in its own way, and the expected verdicts."""

from __future__ import annotations

from support.signed_zones import (
    DAY,
    NOW,
    Nsec3,
    SignedZone,
    key,
    new_key,
    tampered,
    without_signatures,
)

USUAL = """
www TXT "hello"
www A 192.0.2.1
*.wild TXT "any"
starred CNAME *.wild
starry CNAME *.sky.wild
deep.er.name TXT "far"
alias CNAME www
elsewhere CNAME www.plain.test.
broken CNAME www.tampered.test.
nowhere CNAME nothing.nsec.test.
tree DNAME nsec3.test.
gone DNAME plain.test.
_agents SVCB 1 www.nsec.test. alpn=h2
_443._tcp.www TLSA 3 1 1 0d6fce3bd04f5d76ed2a6d21fd0d36a0e0e19d0f1ff0bfa5ea5c0ea72e24b0fa
"""
_OLD, _NEW = key(13, "old"), key(13, "new")
_KSK, _ZSK = key(13, "ksk"), new_key(13, flags=256)
_NOT_A_ZONE_KEY = new_key(13, flags=1)
_HOLLOW = "1234 13 2 " + "00" * 32


def _without(kind: str, text: str) -> str:
    kept = [line for line in text.splitlines() if f" IN {kind} " not in line and f" RRSIG {kind} " not in line]
    return "\n".join(kept) + "\n"


def _zone(name: str, body: str = USUAL, **how: object) -> SignedZone:
    how.setdefault("keys", [key(13, name)])
    return SignedZone(f"{name}.test.", body, **how)  # type: ignore[arg-type]


_ISLAND = _zone("island.plain")
_CLOAKED = _zone("signed.optout")
_BARE = _zone("bare.optout", keys=())
_SUB = _zone("sub.nsec3")
CHILDREN = [
    _zone("nsec"),
    _zone("rsa8", keys=[key(8)]),
    _zone("rsa10", keys=[key(10)]),
    _zone("p384", keys=[key(14)]),
    _zone("ed25519", keys=[key(15)]),
    _zone("ed448", keys=[key(16)]),
    _zone("nsec3", f"{USUAL}{_SUB.delegation()}\n", nsec3=Nsec3(iterations=5, salt=b"salt")),
    _zone("optout", f"{USUAL}{_CLOAKED.delegation()}\n{_BARE.delegation()}\n", nsec3=Nsec3(opt_out=True)),
    _zone("costly", nsec3=Nsec3(iterations=200)),
    _zone("plain", f"{USUAL}{_ISLAND.delegation()}\n", keys=()),
    _zone("tampered", edit=tampered('"hello"', '"hacked"')),
    _zone("expired", inception=NOW - 30 * DAY, expiration=NOW - 3 * DAY),
    _zone("early", inception=NOW + 3 * DAY, expiration=NOW + 30 * DAY),
    _zone("wrongds", ds=f"{key(13, 'wrongds').tag} 13 2 {'ab' * 32}"),
    _zone("otherds", ds=_HOLLOW),
    _zone("stripped", edit=without_signatures),
    _zone("unsigned", keys=(), ds=_HOLLOW),
    _zone("nodenial", edit=lambda text: _without("NSEC", text)),
    _zone("unknown", ds=f"1234 250 2 {'00' * 32}"),
    _zone("unhashed", ds=f"{key(13, 'unhashed').tag} 13 7 {'00' * 32}"),
    _zone("sha1", digest=1),
    _zone(
        "downgraded",
        ds=f"{key(13, 'downgraded').ds('downgraded.test.', 1)}\n{key(13, 'downgraded').tag} 13 2 {'ab' * 32}",
    ),
    _zone("sha384", digest=4),
    _zone("prepublished", keys=[_OLD, _NEW], signers=[_OLD], key_signers=[_OLD]),
    _zone("doublesigned", keys=[_NEW, _OLD]),
    _zone("tooearly", keys=[_NEW, _OLD], signers=[_OLD], key_signers=[_OLD]),
    _zone("split", keys=[_KSK, _ZSK], signers=[_ZSK], key_signers=[_KSK]),
    _zone("withdrawn", keys=[_KSK], signers=[_ZSK], key_signers=[_KSK]),
    _zone("noflag", keys=[_NOT_A_ZONE_KEY]),
]
GRANDCHILDREN = [_ISLAND, _CLOAKED, _BARE, _SUB]
TOP = SignedZone("test.", "ns A 127.0.0.1\n" + "\n".join(child.delegation() for child in CHILDREN), [key(13, "test.")])
ANCHORS = [f"test. IN DS {line}" for line in TOP.ds_lines()]
DATE = "20260101000000"


ZONES = [TOP, *CHILDREN, *GRANDCHILDREN]
NAMES = [zone.name for zone in ZONES]


def zone_texts(*names: str) -> dict[str, str]:
    """The zones with fresh signatures; all, if none is named."""
    return {zone.name: zone.text() for zone in ZONES if not names or zone.name in names}


_WELL_SIGNED = ("nsec", "rsa8", "rsa10", "p384", "ed25519", "ed448", "nsec3", "sha1", "sha384")
_ROLLING = ("prepublished", "doublesigned", "split")
_NEVER = [
    "expired",
    "early",
    "wrongds",
    "otherds",
    "stripped",
    "unsigned",
    "downgraded",
    "tooearly",
    "withdrawn",
    "noflag",
]
Case = tuple[str, str, str, str]
CASES: list[Case] = [
    *((f"www.{zone}.test", "TXT", "found", "secure") for zone in (*_WELL_SIGNED, *_ROLLING)),
    *((f"www.{zone}.test", "MX", "nodata", "secure") for zone in (*_WELL_SIGNED, *_ROLLING)),
    *((f"nothing.{zone}.test", "TXT", "nxdomain", "secure") for zone in (*_WELL_SIGNED, *_ROLLING)),
    *((f"www.{zone}.test", "TXT", "failed", "bogus") for zone in _NEVER),
    *((f"nothing.{zone}.test", "TXT", "failed", "bogus") for zone in _NEVER),
    *(
        (name, kind, outcome, "secure")
        for zone in ("nsec.test", "nsec3.test")
        for name, kind, outcome in (
            (f"any.wild.{zone}", "TXT", "found"),
            (f"many.la.bels.wild.{zone}", "TXT", "found"),
            (f"any.wild.{zone}", "MX", "nodata"),
            (f"wild.{zone}", "TXT", "nodata"),
            (f"er.name.{zone}", "TXT", "nodata"),
            (f"name.{zone}", "TXT", "nodata"),
            (f"no.er.name.{zone}", "TXT", "nxdomain"),
            (f"alias.{zone}", "TXT", "found"),
            (f"starred.{zone}", "TXT", "found"),
            (f"*.wild.{zone}", "TXT", "found"),
            (f"starry.{zone}", "MX", "nodata"),
            (f"nowhere.{zone}", "TXT", "nxdomain"),
            (f"_agents.{zone}", "SVCB", "found"),
            (f"_443._tcp.www.{zone}", "TLSA", "found"),
            (zone, "DNSKEY", "found"),
            (zone, "DS", "found"),
            (f"www.{zone}", "DS", "nodata"),
        )
    ),
    *(
        (f"{name}.{zone}.test", "TXT", "failed", "bogus")
        for zone in ("nsec", "nsec3")
        for name in ("starry", "*.sky.wild")
    ),
    ("starry.optout.test", "TXT", "failed", "bogus"),
    ("starry.plain.test", "TXT", "found", "insecure"),
    ("www.tree.nsec.test", "TXT", "found", "secure"),
    ("www.sub.nsec3.test", "TXT", "found", "secure"),
    ("plain.test", "DS", "nodata", "secure"),
    *((f"{name}.plain.test", "TXT", "found", "insecure") for name in ("www", "any.wild", "alias")),
    ("nothing.plain.test", "TXT", "nxdomain", "insecure"),
    ("www.island.plain.test", "TXT", "found", "insecure"),
    ("elsewhere.nsec.test", "TXT", "found", "insecure"),
    ("www.gone.nsec.test", "TXT", "found", "insecure"),
    ("nothing.gone.nsec3.test", "TXT", "nxdomain", "insecure"),
    ("broken.nsec.test", "TXT", "failed", "bogus"),
    ("www.optout.test", "TXT", "found", "secure"),
    ("www.signed.optout.test", "TXT", "found", "secure"),
    ("www.bare.optout.test", "TXT", "found", "insecure"),
    ("nothing.optout.test", "TXT", "nxdomain", "insecure"),
    ("bare.optout.test", "DS", "nodata", "insecure"),
    ("www.costly.test", "TXT", "found", "secure"),
    ("nothing.costly.test", "TXT", "nxdomain", "insecure"),
    ("www.costly.test", "MX", "nodata", "insecure"),
    ("any.wild.costly.test", "TXT", "found", "insecure"),
    ("www.tampered.test", "TXT", "failed", "bogus"),
    ("www.tampered.test", "A", "found", "secure"),
    ("www.nodenial.test", "TXT", "found", "secure"),
    ("www.nodenial.test", "MX", "failed", "bogus"),
    ("nothing.nodenial.test", "TXT", "failed", "bogus"),
    ("any.wild.nodenial.test", "TXT", "failed", "bogus"),
    ("www.unknown.test", "TXT", "found", "insecure"),
    ("www.unhashed.test", "TXT", "found", "insecure"),
    ("nothing.test", "TXT", "nxdomain", "secure"),
    ("deep.below.nothing.test", "TXT", "nxdomain", "secure"),
]

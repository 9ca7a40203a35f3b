"""Claims of domain ownership: the line that proves a claim, and its state. Pure: no look-ups.

A subject claims a domain and gets a line to publish, as a TXT record or as a file. When the line is found the claim is
proven; periodic checks must find it again. A line proves one claim of one subject on one domain at one service, once:
after a claim has lapsed or was removed, a new line must be published.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, Literal
from urllib.parse import quote

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.names import parse_domain

ProofMethod = Literal["dns", "http"]
PROOF_METHODS: Final[tuple[ProofMethod, ...]] = ("dns", "http")
ClaimState = Literal["pending", "proven", "lapsed"]

NOTE_PREFIX: Final = "domain:"
PROOF_LABEL: Final = "_waypost"
PROOF_PATH: Final = "/.well-known/waypost-proof"
_CONTEXT: Final = b"waypost domain proof v1"

# Public suffixes: names below them belong to different owners, so they cannot be claimed. Below a country code the first
# label decides; the others are large hosting providers.
# fmt: off
_SECOND_LEVELS: Final = frozenset((
    "ac", "co", "com", "edu", "gen", "go", "gob", "gouv", "gov", "gv", "id", "info", "ltd", "me", "mil", "ne", "net", "nhs",
    "nom", "or", "org", "plc", "pro", "sch", "school", "web",
))
_SHARED_HOSTS: Final = frozenset((
    "amazonaws.com", "appspot.com", "azurewebsites.net", "blogspot.com", "cloudfront.net", "firebaseapp.com", "fly.dev",
    "github.io", "gitlab.io", "herokuapp.com", "netlify.app", "ngrok.app", "ngrok.io", "onrender.com", "pages.dev",
    "trycloudflare.com", "vercel.app", "web.app", "workers.dev",
))
# fmt: on
_RESERVED_TLDS: Final = frozenset(("arpa", "invalid", "local", "localhost", "onion"))


class OwnershipClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The claim of one subject on one domain."""

    domain: str
    subject: str
    method: ProofMethod
    nonce: str
    state: ClaimState
    claimed_at: float
    expires_at: float  # of a pending claim
    proven_at: float | None = None
    checked_at: float | None = None  # when the line was last found
    next_check_at: float | None = None
    failures: int = 0  # consecutive checks that did not find the line

    @property
    def line(self) -> str:
        return f"v=waypost1; subject={quote(self.subject, safe='@.-_~')}; nonce={self.nonce}"

    @property
    def place(self) -> str:
        """Return where the line must be published."""
        return f"{PROOF_LABEL}.{self.domain}" if self.method == "dns" else f"https://{self.domain}{PROOF_PATH}"

    def is_over(self, now: float) -> bool:
        return self.state == "lapsed" or (self.state == "pending" and now >= self.expires_at)

    def covers(self, domain: str) -> bool:
        """A DNS proof covers all subdomains, an HTTP proof only its own name."""
        if self.state != "proven":
            return False
        return domain == self.domain or (self.method == "dns" and domain.endswith(f".{self.domain}"))


class OwnershipClaims(msgspec.Struct, frozen=True, kw_only=True):
    """All claims on one domain, by subject."""

    claims: dict[str, OwnershipClaim] = {}

    def with_claim(self, claim: OwnershipClaim) -> OwnershipClaims:
        return OwnershipClaims(claims={**self.claims, claim.subject: claim})

    def without(self, subject: str) -> OwnershipClaims:
        return OwnershipClaims(claims={name: claim for name, claim in self.claims.items() if name != subject})

    def without_expired(self, now: float) -> OwnershipClaims:
        """Return the claims without lapsed and expired ones."""
        return OwnershipClaims(claims={name: claim for name, claim in self.claims.items() if not claim.is_over(now)})


_decoder = msgspec.json.Decoder(OwnershipClaims)


def claims_key(domain: str) -> str:
    return f"{NOTE_PREFIX}{domain}"


def load_claims(data: bytes | None) -> OwnershipClaims:
    return OwnershipClaims() if data is None else _decoder.decode(data)


def dump_claims(note: OwnershipClaims) -> bytes | None:
    """Return the note to store; None to delete it."""
    return msgspec.json.encode(note) if note.claims else None


def is_public_suffix(domain: str) -> bool:
    """Return whether names below this one belong to different owners: a top-level domain, or one used like it."""
    labels = domain.split(".")
    country = len(labels) == 2 and len(labels[1]) == 2 and labels[0] in _SECOND_LEVELS
    return len(labels) < 2 or domain in _SHARED_HOSTS or country


def registrable_domain(domain: str) -> str:
    """Return the shortest parent (or the name itself) that is not a public suffix."""
    labels = domain.split(".")
    names = (".".join(labels[start:]) for start in range(len(labels) - 1, -1, -1))
    return next((name for name in names if not is_public_suffix(name)), domain)


def parse_provable_domain(value: object, path: str = "$.domain") -> str:
    """D15: parse a domain that one subject can own: no IP address, no single label, no public suffix."""
    domain = parse_domain(value, path)
    labels = domain.split(".")
    if labels[-1].isdecimal() or labels[-1] in _RESERVED_TLDS or is_public_suffix(domain):
        raise InvalidParameter(
            f"{domain!r} is not a domain that one subject can own.",
            path=path,
            hint="Name a domain of your own, like agents.example.com.",
        )
    return domain


def make_nonce(secret: bytes, *, service: str, domain: str, subject: str) -> str:
    """Return a nonce bound to service, domain and subject, so that it proves nothing for others."""
    parts = (_CONTEXT, service.encode(), domain.encode(), subject.encode(), secret)
    digest = hashlib.sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def has_proof_line(claim: OwnershipClaim, lines: Iterable[str]) -> bool:
    """Return whether one of the lines is the claim's. White space around it and its parts is ignored."""
    expected = _parts(claim.line)
    return any(_parts(line) == expected for line in lines)


def _parts(line: str) -> list[str]:
    return [part.strip() for part in line.strip().strip('"').split(";") if part.strip()]


def parent_domains(domain: str) -> list[str]:
    """Return the domain and its parents that can be proven."""
    labels = domain.split(".")
    return [".".join(labels[start:]) for start in range(max(1, len(labels) - 1))][-limits.PROOF_LEVELS :]


def find_covering_claim(subject: str, domain: str, notes: Mapping[str, bytes]) -> OwnershipClaim | None:
    """Return the proven claim that covers a domain; the closest one if there are several."""
    for name in parent_domains(domain):
        claim = load_claims(notes.get(claims_key(name))).claims.get(subject)
        if claim is not None and claim.covers(domain):
            return claim
    return None


# --- State changes --------------------------------------------------------------------------------


def mark_proven(claim: OwnershipClaim, now: float, next_check_at: float) -> OwnershipClaim:
    return msgspec.structs.replace(
        claim,
        state="proven",
        proven_at=claim.proven_at or now,
        checked_at=now,
        next_check_at=next_check_at,
        failures=0,
    )


def mark_missed(claim: OwnershipClaim, next_check_at: float) -> OwnershipClaim:
    """Count a failed check; too many in a row end the claim."""
    failures = claim.failures + 1
    if failures >= limits.PROOF_FAILURES:
        return msgspec.structs.replace(claim, state="lapsed", failures=failures, next_check_at=None)
    return msgspec.structs.replace(claim, failures=failures, next_check_at=next_check_at)

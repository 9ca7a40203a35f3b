"""Keys, owners, issuers and proofs."""

from __future__ import annotations

from typing import Final

from waypost.limits.sizes import KIB

# --- Keys and signatures -------------------------------------------------------------------------
KEY_BYTES: Final = 8 * KIB  # announce.md §1; RSA of 8192 bits has 1.5 KiB, a certificate is rarely past 3 KiB
RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192  # beyond it verifying is a way to keep a server busy
RSA_EXPONENT_MIN: Final = 65_537  # smaller ones forgive mistakes in padding
JWS_BYTES: Final = 8 * KIB  # a token, or the header of a detached signature
JWKS_KEYS: Final = 64
JWKS_BYTES: Final = 64 * KIB
SIGNATURES: Final = 8  # of one document that are looked at

# --- Owners --------------------------------------------------------------------------------------
TOKEN_TTL_MAX_SECONDS: Final = 86_400
TOKEN_LEEWAY_SECONDS: Final = 30
AGENTS_PER_OWNER: Final = 1000  # more than any team runs; an import of everybody's agents is an admin's
INVITEES: Final = 100  # subjects that may see one private agent: each is a token of its audience
SUBJECT_CHARS: Final = 256
READS_PER_MINUTE: Final = 3000  # 50 a second, sustained: a program, not a person
WRITES_PER_MINUTE: Final = 1200  # an owner of AGENTS_PER_OWNER agents may renew each once a minute
WRITE_LINES: Final = 100  # lines of a batch that count as one write: an import of all agents of an owner is ten
AUTH_FAILURES_PER_MINUTE: Final = 600  # of one address; beyond it nothing is decrypted or verified for it

# --- Outside issuers and client certificates -------------------------------------------------------
JWKS_REFRESH_SECONDS: Final = 60  # between two looks for a key that is not known: a token must not make us ask at will
JWKS_FRESH_SECONDS: Final = 600  # after which keys are fetched again in the background
JWKS_KEEP_SECONDS: Final = 86_400  # how long the last keys hold while their issuer cannot be reached
TOKEN_RECHECK_SECONDS: Final = 30  # a token that holds is asked about again: its key may be gone
SECRET_BYTES: Final = 32  # of an HS256 secret, at least: as long as what it makes (RFC 7518 §3.2)
FILE_CHECK_SECONDS: Final = 5.0  # between two looks whether a file of keys or revocations changed
CERTIFICATE_CACHE: Final = 1024

# --- Domain proofs -------------------------------------------------------------------------------
PROOF_TTL_SECONDS: Final = 7 * 86_400  # a zone is changed by people, who have weekends
PROOF_CLAIMS: Final = 32  # subjects that claim one domain
PROOF_DOMAINS: Final = 100  # claims of one subject
PROOF_FAILURES: Final = 3  # checks in a row that end a grant: an outage is no loss of a domain
PROOF_RECHECK_SECONDS: Final = 86_400
PROOF_RETRY_PART: Final = 24  # after a failure a re-check comes in this part of the usual time
PROOF_RECHECKS_AT_ONCE: Final = 8
PROOF_TXT_RECORDS: Final = 64  # at the name of a proof that are looked at
PROOF_LEVELS: Final = 8  # of a domain, from the top, that are asked for a proof
PROOF_UNANSWERED: Final = 7  # periods without any answer from our own resolver until that counts as a failure
PROOF_NOTES: Final = 64  # domains that one registration is held against

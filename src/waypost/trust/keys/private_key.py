"""Private keys, and documents signed with them. The signer emits one algorithm for each kind of key.

Randomness is an argument where the library takes it: Ed25519 and P-256 keys come from bytes that the caller drew. RSA keys
and the nonces of ECDSA and PSS are drawn by the library itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from waypost import limits
from waypost.errors import InvalidKey
from waypost.model.json import JsonObject, dump_json
from waypost.model.times import to_rfc3339
from waypost.trust.announce.signed_announcement import parse_announced_key
from waypost.trust.encodings import encode_base64, encode_base64url
from waypost.trust.keys import ed25519
from waypost.trust.keys.algorithms import COORDINATE_BYTES
from waypost.trust.keys.public_key import PublicKey, from_native
from waypost.trust.signing_input import a2a_payload, adp_payload, ard_payload, canonicalize, profile_payload

NativePrivateKey: TypeAlias = Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
NEW_KINDS = ("ed25519", "p-256", "rsa")
SEED_BYTES = {"ed25519": 32, "p-256": 48}  # 128 bits more than the order, so that no scalar is likelier than another
_RSA_BITS = 3072
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_ORDERS = {
    "p-256": _P256_ORDER,
    "p-384": 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973,
    "p-521": (1 << 521) - 0x05AE79787C40D069948033FEB708F65A2FC44A36477663B851449048E16EC79BF7,
}
_DIGESTS: dict[str, HashAlgorithm] = {"p-256": SHA256(), "p-384": SHA384(), "p-521": SHA512()}
_ALGORITHMS = {"ed25519": "EdDSA", "p-256": "ES256", "p-384": "ES384", "p-521": "ES512", "rsa": "PS256"}


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A key that signs, and its public half."""

    public: PublicKey
    native: NativePrivateKey = field(repr=False, compare=False)

    @property
    def jose_algorithm(self) -> str:
        return _ALGORITHMS[self.public.kind]

    def sign(self, data: bytes) -> bytes:
        """As announcements are signed (announce.md P-9): Ed25519, ECDSA in DER with low S, RSA-PSS with a salt of 32."""
        if (
            self.public.kind == "ed25519"
        ):  # each message of a conversation: its class is not asked for, which takes longer
            return ed25519.sign(cast(Ed25519PrivateKey, self.native), data, self.public.spki[-ed25519.KEY_BYTES :])
        if isinstance(self.native, ec.EllipticCurvePrivateKey):
            return encode_dss_signature(*self._ecdsa(self.native, data))
        return self._sign_plain(self.native, data, 32)

    def sign_each(self, texts: Sequence[bytes]) -> list[bytes]:
        """The same of several texts."""
        if self.public.kind == "ed25519":
            native = cast(Ed25519PrivateKey, self.native)
            return ed25519.sign_many(native, texts, self.public.spki[-ed25519.KEY_BYTES :])
        return [self.sign(text) for text in texts]

    def sign_jose(self, data: bytes) -> bytes:
        """As `jose_algorithm` signs: ECDSA as r‖s."""
        if isinstance(self.native, ec.EllipticCurvePrivateKey):
            size = COORDINATE_BYTES[self.public.kind]
            return b"".join(part.to_bytes(size, "big") for part in self._ecdsa(self.native, data))
        return self._sign_plain(self.native, data, 32)

    def sign_for_older_readers(self, data: bytes) -> bytes:
        """RSA-PSS with the longest salt, the only one that the first implementation of announce takes."""
        if isinstance(self.native, rsa.RSAPrivateKey):
            return self._sign_plain(self.native, data, padding.PSS.MAX_LENGTH)
        return self.sign(data)

    def pem(self) -> bytes:
        """PKCS #8, not encrypted: the file it goes into is for its owner alone."""
        return self.native.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def _ecdsa(self, native: ec.EllipticCurvePrivateKey, data: bytes) -> tuple[int, int]:
        order = _ORDERS[self.public.kind]
        r, s = decode_dss_signature(native.sign(data, ec.ECDSA(_DIGESTS[self.public.kind])))
        return r, min(s, order - s)  # both hold; some readers take the lower one only

    @staticmethod
    def _sign_plain(
        native: Ed25519PrivateKey | rsa.RSAPrivateKey, data: bytes, salt: int | padding._MaxLength
    ) -> bytes:
        if isinstance(native, Ed25519PrivateKey):
            return ed25519.sign(native, data)
        return native.sign(data, padding.PSS(padding.MGF1(SHA256()), salt), SHA256())


def new_private_key(kind: str = "ed25519", random: bytes = b"") -> PrivateKey:
    """A new key. `random` has SEED_BYTES of the kind; RSA takes none."""
    if kind not in NEW_KINDS:
        raise InvalidKey(f"{kind[:20]!r} is not a kind of key.", path="kind", hint=f"Use {', '.join(NEW_KINDS)}.")
    if len(random) != SEED_BYTES.get(kind, 0):
        raise ValueError(f"a key of the kind {kind} needs {SEED_BYTES.get(kind, 0)} random bytes")
    if kind == "ed25519":
        return from_native_private(Ed25519PrivateKey.from_private_bytes(random))
    if kind == "p-256":
        scalar = int.from_bytes(random, "big") % (_P256_ORDER - 1) + 1
        return from_native_private(ec.derive_private_key(scalar, ec.SECP256R1()))
    return from_native_private(rsa.generate_private_key(limits.RSA_EXPONENT_MIN, _RSA_BITS))


def load_private_key(pem: bytes, path: str = "key") -> PrivateKey:
    """The key in an unencrypted PEM."""
    try:
        return from_native_private(load_pem_private_key(pem, None), path)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidKey(
            "This is not a private key in PEM without a password.", path=path, hint="Make one with `waypost keys new`."
        ) from None


def from_native_private(native: object, path: str = "key") -> PrivateKey:
    if not isinstance(native, Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise InvalidKey("Keys of this kind are not accepted.", path=path, hint="Make one with `waypost keys new`.")
    return PrivateKey(from_native(native.public_key(), path), native)


# --- Documents ------------------------------------------------------------------------------------


def sign_announcement(
    agent: JsonObject,
    key: PrivateKey,
    previous: PrivateKey | None = None,
    *,
    now: float | None = None,
    older_readers: bool = False,
) -> JsonObject:
    """An announcement of `agent`, signed by `key` and, while a rotation is told, by the key before it (P-13).

    With `now` the sequence and the time that guard against replay are added where they are not there (P-16).
    """
    said = _with_public_key(agent if now is None else _with_timestamps(agent, now), key)
    covered = canonicalize(said)
    sign = key.sign_for_older_readers if older_readers else key.sign
    message: JsonObject = {"protocol_version": "v1.0", "agent": said, "signature": encode_base64(sign(covered))}
    if previous is not None:
        message["previous_signature"] = encode_base64(previous.sign(covered))
    return message


def sign_card(card: JsonObject, key: PrivateKey, *, kid: str | None = None) -> JsonObject:
    """An A2A card with one more signature."""
    protected, signature = _sign_jws(key, a2a_payload(card), kid, typ="JOSE")
    return {**card, "signatures": [*card.get("signatures", ()), {"protected": protected, "signature": signature}]}


def sign_profile(document: JsonObject, key: PrivateKey, *, kid: str | None = None) -> JsonObject:
    """A profile record with its `signature` (jws-jcs)."""
    protected, signature = _sign_jws(key, profile_payload(document), kid)
    told = {"format": "jws-jcs", "alg": key.jose_algorithm, "kid": kid or key.public.key_id}
    return {**document, "signature": {**told, "protected": protected, "signature": signature}}


def sign_manifest(manifest: JsonObject, key: PrivateKey, *, kid: str | None = None) -> JsonObject:
    """An ARD trust manifest with its `signature`, a detached JWS."""
    protected, signature = _sign_jws(key, ard_payload(manifest), kid)
    return {**manifest, "signature": f"{protected}..{signature}"}


def sign_adp_public_key(key: PrivateKey, domain: str) -> JsonObject:
    """`identity.publicKey` of an ADP document, with its proof."""
    fingerprint = key.public.fingerprint()
    if fingerprint is None:
        raise InvalidKey("ADP takes Ed25519 keys only.", path="key", hint="Make one with `waypost keys new`.")
    proof = "signature:" + encode_base64(key.sign(adp_payload(domain)))
    return {"algorithm": "ed25519", "fingerprint": fingerprint, "full": key.public.pem(), "proof": proof}


def sign_compact(key: PrivateKey, payload: bytes, *, kid: str | None = None, typ: str | None = None) -> str:
    protected, signature = _sign_jws(key, payload, kid, typ=typ)
    return f"{protected}.{encode_base64url(payload)}.{signature}"


def _sign_jws(key: PrivateKey, payload: bytes, kid: str | None, *, typ: str | None = None) -> tuple[str, str]:
    header = {"alg": key.jose_algorithm, "kid": kid or key.public.key_id, **({"typ": typ} if typ else {})}
    protected = encode_base64url(dump_json(header))
    return protected, encode_base64url(key.sign_jose(f"{protected}.{encode_base64url(payload)}".encode()))


def _with_public_key(agent: JsonObject, key: PrivateKey) -> JsonObject:
    told = agent.get("public_key")
    if told is None:
        return {**agent, "public_key": key.public.pem()}
    if parse_announced_key(told).key_id != key.public.key_id:
        raise InvalidKey(
            "The agent names another key than the one it is signed with.",
            path="$.agent.public_key",
            hint="Leave it out, or sign with its key.",
        )
    return agent


def _with_timestamps(agent: JsonObject, now: float) -> JsonObject:
    stamp = {"__seq": int(now * 1000), "__iat": to_rfc3339(now)}
    return {**agent, "metadata": stamp | (agent.get("metadata") or {})}

"""An invitation as it is written (ADP-56), and what its signature covers (P-6). Who may redeem it is not known here."""

from __future__ import annotations

import re

import msgspec

from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.times import parse_rfc3339
from waypost.protocols.adp.agp.messages import SigningKey, VerifyingKey, reject_control_characters, sign, verify

PROTOCOL = "ADP/1.1"
SCHEME = "ADP-Invite"  # Authorization: ADP-Invite <code>
_CODE = re.compile(r"[A-Za-z0-9._~-]{1,128}\Z")
_FINGERPRINT = re.compile(r"ed25519:[A-Za-z0-9_-]{43}\Z")
_URL_CHARS = 2048


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    agent: str
    well_known: str
    pubkey: str  # the fingerprint that stands in for the one of the DNS
    expires: str
    signature: str | None = None

    @property
    def expires_at(self) -> float:
        return parse_rfc3339(self.expires, "$.invite.expires")

    @property
    def covered(self) -> bytes:
        """What is signed. No part but the last may hold a line feed; none does."""
        members = {"code": self.code, "agent": self.agent, "wellKnown": self.well_known, "pubkey": self.pubkey}
        reject_control_characters(**members, expires=self.expires)
        return "\n".join((*members.values(), self.expires)).encode()

    def signed(self, key: SigningKey) -> Invitation:
        return msgspec.structs.replace(self, signature=sign(key, self.covered))

    def is_signed_by(self, key: VerifyingKey) -> bool:
        return self.signature is not None and verify(key, self.signature, self.covered)

    def json(self) -> JsonObject:
        invite: JsonObject = {
            "code": self.code,
            "agent": self.agent,
            "wellKnown": self.well_known,
            "pubkey": self.pubkey,
            "expires": self.expires,
        }
        if self.signature is not None:
            invite["signature"] = self.signature
        return {"protocol": PROTOCOL, "invite": invite}


def parse_invitation(document: JsonObject, path: str = "$") -> Invitation:
    """Raises InvalidDocument for what is none."""
    protocol = document.get("protocol")
    if not isinstance(protocol, str) or not protocol.startswith("ADP/1"):
        raise InvalidDocument("This is no invitation of ADP.", path=f"{path}.protocol", hint=f"It is {PROTOCOL}.")
    invite = document.get("invite")
    if not isinstance(invite, dict):
        raise InvalidDocument("The invitation is missing.", path=f"{path}.invite", hint="Take the whole file.")
    text = {name: _text(invite, name, path) for name in ("code", "agent", "wellKnown", "pubkey", "expires")}
    if not _FINGERPRINT.match(text["pubkey"]):
        raise InvalidDocument(
            "The key is not ed25519: and 43 characters of base64url.",
            path=f"{path}.invite.pubkey",
            hint="Ask for it anew.",
        )
    signature = invite.get("signature")
    found = Invitation(
        code=parse_code(text["code"], f"{path}.invite.code"),
        agent=text["agent"],
        well_known=text["wellKnown"],
        pubkey=text["pubkey"],
        expires=text["expires"],
        signature=signature if isinstance(signature, str) else None,
    )
    reject_control_characters(agent=found.agent, wellKnown=found.well_known, expires=found.expires)
    _ = found.expires_at
    return found


def parse_code(value: object, path: str = "code") -> str:
    if not isinstance(value, str) or not _CODE.match(value):
        raise InvalidDocument("This is no code of an invitation.", path=path, hint="Copy the whole code.")
    return value


def _text(invite: JsonObject, name: str, path: str) -> str:
    value = invite.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _URL_CHARS:
        raise InvalidDocument(f"{name} is missing.", path=f"{path}.invite.{name}", hint="Take the whole invitation.")
    return value

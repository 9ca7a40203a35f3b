"""Invitations (ADP-56) and the bytes that their signature covers (P-6)."""

from __future__ import annotations

import re

import msgspec

from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.times import parse_rfc3339
from waypost.protocols.adp.agp.messages import (
    PROTOCOL,
    SigningKey,
    VerifyingKey,
    reject_control_characters,
    sign,
    verify,
)
from waypost.protocols.adp.codec import FINGERPRINT

SCHEME = "ADP-Invite"  # Authorization: ADP-Invite <code>
_CODE = re.compile(r"[A-Za-z0-9._~-]{1,128}\Z")
_URL_CHARS = 2048


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    agent: str
    well_known: str
    pubkey: str  # fingerprint, used instead of the one in the DNS
    expires: str
    signature: str | None = None

    @property
    def expires_at(self) -> float:
        return parse_rfc3339(self.expires, "$.invite.expires")

    @property
    def signing_input(self) -> bytes:
        """The signed bytes. Control characters are rejected, because line feeds separate the parts."""
        members = {"code": self.code, "agent": self.agent, "wellKnown": self.well_known, "pubkey": self.pubkey}
        reject_control_characters(**members, expires=self.expires)
        return "\n".join((*members.values(), self.expires)).encode()

    def signed(self, key: SigningKey) -> Invitation:
        return msgspec.structs.replace(self, signature=sign(key, self.signing_input))

    def is_signed_by(self, key: VerifyingKey) -> bool:
        return self.signature is not None and verify(key, self.signature, self.signing_input)

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
    """Parse an invitation; raises InvalidDocument."""
    protocol = document.get("protocol")
    if not isinstance(protocol, str) or not protocol.startswith("ADP/1"):
        raise InvalidDocument(
            "This is not an ADP invitation.", path=f"{path}.protocol", hint=f"The protocol must be {PROTOCOL}."
        )
    invite = document.get("invite")
    if not isinstance(invite, dict):
        raise InvalidDocument("The member `invite` is missing.", path=f"{path}.invite", hint="Copy the whole file.")
    text = {name: _text(invite, name, path) for name in ("code", "agent", "wellKnown", "pubkey", "expires")}
    if not FINGERPRINT.match(text["pubkey"]):
        raise InvalidDocument(
            "The key is not `ed25519:` and 43 base64url characters.",
            path=f"{path}.invite.pubkey",
            hint="Ask for a new invitation.",
        )
    signature = invite.get("signature")
    invitation = Invitation(
        code=parse_code(text["code"], f"{path}.invite.code"),
        agent=text["agent"],
        well_known=text["wellKnown"],
        pubkey=text["pubkey"],
        expires=text["expires"],
        signature=signature if isinstance(signature, str) else None,
    )
    reject_control_characters(agent=invitation.agent, wellKnown=invitation.well_known, expires=invitation.expires)
    parse_rfc3339(invitation.expires, "$.invite.expires")
    return invitation


def parse_code(value: object, path: str = "code") -> str:
    if not isinstance(value, str) or not _CODE.match(value):
        raise InvalidDocument("This is not an invitation code.", path=path, hint="Copy the whole code.")
    return value


def _text(invite: JsonObject, name: str, path: str) -> str:
    value = invite.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _URL_CHARS:
        raise InvalidDocument(
            f"The member {name!r} is missing or too long.",
            path=f"{path}.invite.{name}",
            hint="Copy the whole invitation.",
        )
    return value

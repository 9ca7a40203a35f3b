"""The first message of each side (adp.md §6.6): who speaks, with which key, and the nonces that prove that it speaks
now.

Ours is a control message, so its content is signed like any other. Three older forms are read as well (`hello` and
`adp_handshake` as types of their own, `body.action` "handshake"); what they lack in proof caps the session (P-2).
"""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Literal

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, UnsupportedVersion
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.times import to_rfc3339
from waypost.protocols.adp.agp.messages import (
    PROTOCOL,
    AgpMessage,
    MessageContent,
    SigningKey,
    parse_agent,
    read_action,
    read_message,
    sign,
    signing_input,
    write_action,
)

HelloForm = Literal["system", "hello", "adp_handshake", "handshake"]
FINGERPRINT = re.compile(r"ed25519:[A-Za-z0-9_-]{43}\Z")
_NONCE = re.compile(r"[A-Za-z0-9_+/=-]*\Z")
_RAW = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_ARMOUR = re.compile(r"-----(BEGIN|END) PUBLIC KEY-----")
_ED25519_DER = bytes.fromhex("302a300506032b6570032100")  # what comes before the 32 bytes (RFC 8410)
_ED25519_BYTES = 32
_AGENT_MEMBERS = ("agent", "agent_id", "from", "agentId")
_KEY_MEMBERS = ("fingerprint", "public_key", "publicKey", "pubkey")


class AgpIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks on our side."""

    agent: str
    key: SigningKey
    fingerprint: str
    raw: bytes  # the public key


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    fingerprint: str
    to: str | None
    nonce: str = ""
    echo: str = ""
    raw: bytes | None = None  # the key itself, where it is shown; the fingerprint says which one it must be
    form: HelloForm = "system"
    message: AgpMessage | None = None  # what was signed, where something was


def find_hello(document: JsonObject) -> Hello | None:
    """The hello in a frame, or None for any other message."""
    kind, body = document.get("type"), document.get("body")
    if kind == "system" and isinstance(body, dict) and body.get("action") == "handshake":
        return _older(document, "handshake")
    if kind in ("hello", "adp_handshake"):
        return _older(document, kind)
    if kind != "system":
        return None
    message = read_message(document)
    said = read_action(message)
    return _read(said, message) if said["action"] == "hello" else None


def _read(said: JsonObject, message: AgpMessage) -> Hello:
    if said.get("protocol") not in (None, PROTOCOL, "ADP/1.0"):
        raise UnsupportedVersion(
            f"{str(said.get('protocol'))[:32]!r} is not spoken here.",
            path="$.body.content.protocol",
            hint=f"Speak {PROTOCOL}.",
        )
    agent = parse_agent(said.get("agent"), "$.body.content.agent")
    if agent != message.sender:
        raise InvalidDocument(
            "The hello speaks for another agent than its sender.",
            path="$.body.content.agent",
            hint="Say hello for yourself.",
        )
    return Hello(
        agent=agent,
        fingerprint=_fingerprint(said.get("fingerprint")),
        to=message.to,
        nonce=_nonce(said.get("nonce"), "nonce"),
        echo=_nonce(said["echo"], "echo") if "echo" in said else "",
        raw=_raw(said.get("key")),
        message=message,
    )


def hello_content(
    me: AgpIdentity, nonce: str, *, echo: str | None = None, reply_to: str | None = None
) -> MessageContent:
    key = urlsafe_b64encode(me.raw).rstrip(b"=").decode()
    said = write_action(
        "hello", protocol=PROTOCOL, agent=me.agent, fingerprint=me.fingerprint, nonce=nonce, echo=echo, key=key
    )
    return msgspec.structs.replace(said, reply_to=reply_to)


# --- Older forms ----------------------------------------------------------------------------------


def _older(document: JsonObject, form: HelloForm) -> Hello:
    body = document.get("body")
    said = {**document, **(body if isinstance(body, dict) else {})}
    said |= _nested_json(said.get("content"))
    agent = next((said[name] for name in _AGENT_MEMBERS if isinstance(said.get(name), str)), None)
    shown = next((said[name] for name in _KEY_MEMBERS if isinstance(said.get(name), str)), None)
    raw = _decode_key(shown)
    signed = form != "adp_handshake" and isinstance(document.get("signature"), str)
    nonce = said.get("nonce")
    return Hello(
        agent=parse_agent(agent),
        fingerprint=_fingerprint(shown if raw is None else fingerprint_of(raw)),
        to=parse_agent(said["to"], "$.to") if isinstance(said.get("to"), str) else None,
        nonce=nonce if isinstance(nonce, str) and len(nonce) <= limits.AGP_NONCE_CHARS[1] else "",
        raw=raw,
        form=form,
        message=_signed(document) if signed else None,
    )


def _nested_json(content: object) -> JsonObject:
    """What a content says that is itself JSON, as in our own form."""
    if not isinstance(content, str) or not content.startswith("{"):
        return {}
    told = parse_object(content.encode("utf-8", "surrogatepass"), max_bytes=limits.AGP_FRAME_BYTES)
    return {name: told[name] for name in (*_AGENT_MEMBERS, *_KEY_MEMBERS, "nonce") if name in told}


def _decode_key(shown: object) -> bytes | None:
    """The key itself, in any of the ways in which it was ever written: PEM, or base64 of its 32 bytes or its DER
    (C-3)."""
    if not isinstance(shown, str) or FINGERPRINT.match(shown):
        return None
    text = "".join(_ARMOUR.sub("", shown).split()).rstrip("=")
    if not _NONCE.match(text) or len(text) % 4 == 1:
        return None
    raw = b64decode(text + "=" * (-len(text) % 4), altchars=b"-_" if set(text) & set("-_") else None)
    raw = raw.removeprefix(_ED25519_DER)
    return raw if len(raw) == _ED25519_BYTES else None


def _signed(document: JsonObject) -> AgpMessage:
    """A hello as a type of its own is signed as that type."""
    kind = str(document["type"])
    message = read_message({**document, "type": "system"})
    covered = signing_input(
        message.id,
        str(document["from"]),
        str(document["to"]),
        kind,
        message.timestamp,
        message.content.text,
    )
    return msgspec.structs.replace(message, type=kind, covered=covered)


def write_legacy_answer(me: AgpIdentity, hello: Hello, *, message_id: str, nonce: str, at: float) -> str:
    """Our hello in the form in which theirs came."""
    told: JsonObject = {"id": message_id, "type": hello.form, "protocol": PROTOCOL, "nonce": nonce}
    if hello.form == "adp_handshake":
        return dump_json({**told, "agent_id": me.agent, "public_key": me.fingerprint}).decode()
    kind = "system" if hello.form == "handshake" else hello.form
    timestamp = to_rfc3339(at)
    covered = signing_input(message_id, me.agent, hello.agent, kind, timestamp)
    body = {"content": "", "action": "handshake"} if hello.form == "handshake" else {"content": ""}
    signed = {"from": me.agent, "to": hello.agent, "timestamp": timestamp, "signature": sign(me.key, covered)}
    return dump_json(
        {**told, **signed, "type": kind, "agent": me.agent, "fingerprint": me.fingerprint, "body": body}
    ).decode()


def fingerprint_of(raw: bytes) -> str:
    return "ed25519:" + urlsafe_b64encode(sha256(raw).digest()).rstrip(b"=").decode()


def _fingerprint(value: object) -> str:
    if not isinstance(value, str) or not FINGERPRINT.match(value):
        raise InvalidDocument(
            "The fingerprint is not ed25519: and 43 characters of base64url.",
            path="$.body.content.fingerprint",
            hint="Write the SHA-256 of the 32 bytes of the key.",
        )
    return value


def _nonce(value: object, name: str) -> str:
    least, most = limits.AGP_NONCE_CHARS
    if not isinstance(value, str) or not least <= len(value) <= most or not _NONCE.match(value):
        raise InvalidDocument(
            f"The {name} is not base64url of 16 random bytes or more.", path=f"$.body.content.{name}", hint="Draw one."
        )
    return value


def _raw(value: object) -> bytes | None:
    if not isinstance(value, str) or not _RAW.match(value):
        return None
    return urlsafe_b64decode(value + "=")

"""The hello of each side (adp.md §6.6): agent, key, and the nonces that prove that the peer is present.

Ours is a control message, so its content is signed like any other. Three older forms are read as well (`hello` and
`adp_handshake` as message types, `body.action` "handshake"); they lack proof, so the session is capped (P-2).
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
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
from waypost.protocols.adp.codec import FINGERPRINT, find_raw_key, key_fingerprint

HelloForm = Literal["system", "hello", "adp_handshake", "handshake"]
_NONCE = re.compile(r"[A-Za-z0-9_+/=-]*\Z")
_RAW = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_AGENT_MEMBERS = ("agent", "agent_id", "from", "agentId")
_KEY_MEMBERS = ("fingerprint", "public_key", "publicKey", "pubkey")


class AgpIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Our side of a session."""

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
    raw: bytes | None = None  # the key, if the hello has it; it must match the fingerprint
    form: HelloForm = "system"
    message: AgpMessage | None = None  # the signed message, if there is one


def find_hello(document: JsonObject) -> Hello | None:
    """Return the hello in a frame; None for other messages."""
    kind, body = document.get("type"), document.get("body")
    if kind == "system" and isinstance(body, dict) and body.get("action") == "handshake":
        return _read_legacy(document, "handshake")
    if kind in ("hello", "adp_handshake"):
        return _read_legacy(document, kind)
    if kind != "system":
        return None
    message = read_message(document)
    action = read_action(message)
    return _read(action, message) if action["action"] == "hello" else None


def _read(action: JsonObject, message: AgpMessage) -> Hello:
    if action.get("protocol") not in (None, PROTOCOL, "ADP/1.0"):
        raise UnsupportedVersion(
            f"The protocol {str(action.get('protocol'))[:32]!r} is not supported.",
            path="$.body.content.protocol",
            hint=f"Use {PROTOCOL}.",
        )
    agent = parse_agent(action.get("agent"), "$.body.content.agent")
    if agent != message.sender:
        raise InvalidDocument(
            "The agent of the hello is not its sender.",
            path="$.body.content.agent",
            hint="Use the same agent in both.",
        )
    return Hello(
        agent=agent,
        fingerprint=_fingerprint(action.get("fingerprint")),
        to=message.to,
        nonce=_nonce(action.get("nonce"), "nonce"),
        echo=_nonce(action["echo"], "echo") if "echo" in action else "",
        raw=_raw(action.get("key")),
        message=message,
    )


def hello_content(
    me: AgpIdentity, nonce: str, *, echo: str | None = None, reply_to: str | None = None
) -> MessageContent:
    key = urlsafe_b64encode(me.raw).rstrip(b"=").decode()
    content = write_action(
        "hello", protocol=PROTOCOL, agent=me.agent, fingerprint=me.fingerprint, nonce=nonce, echo=echo, key=key
    )
    return msgspec.structs.replace(content, reply_to=reply_to)


# --- Older forms ----------------------------------------------------------------------------------


def _read_legacy(document: JsonObject, form: HelloForm) -> Hello:
    body = document.get("body")
    members = {**document, **(body if isinstance(body, dict) else {})}
    members |= _nested_json(members.get("content"))
    agent = next((members[name] for name in _AGENT_MEMBERS if isinstance(members.get(name), str)), None)
    key = next((members[name] for name in _KEY_MEMBERS if isinstance(members.get(name), str)), None)
    raw = None if key is None or FINGERPRINT.match(key) else find_raw_key(key)
    signed = form != "adp_handshake" and isinstance(document.get("signature"), str)
    nonce = members.get("nonce")
    return Hello(
        agent=parse_agent(agent),
        fingerprint=_fingerprint(key if raw is None else key_fingerprint(raw)),
        to=parse_agent(members["to"], "$.to") if isinstance(members.get("to"), str) else None,
        nonce=nonce if isinstance(nonce, str) and len(nonce) <= limits.AGP_NONCE_CHARS[1] else "",
        raw=raw,
        form=form,
        message=_signed(document) if signed else None,
    )


def _nested_json(content: object) -> JsonObject:
    """Return the members of a content that is JSON, as in our own form."""
    if not isinstance(content, str) or not content.startswith("{"):
        return {}
    document = parse_object(content.encode("utf-8", "surrogatepass"), max_bytes=limits.AGP_FRAME_BYTES)
    return {name: document[name] for name in (*_AGENT_MEMBERS, *_KEY_MEMBERS, "nonce") if name in document}


def _signed(document: JsonObject) -> AgpMessage:
    """Read a hello with its own message type, which the signature covers."""
    kind = str(document["type"])
    message = read_message({**document, "type": "system"})
    signed = signing_input(
        message.id,
        str(document["from"]),
        str(document["to"]),
        kind,
        message.timestamp,
        message.content.text,
    )
    return msgspec.structs.replace(message, type=kind, signing_input=signed)


def write_legacy_answer(me: AgpIdentity, hello: Hello, *, message_id: str, nonce: str, at: float) -> str:
    """Return our hello in the form of theirs."""
    common: JsonObject = {"id": message_id, "type": hello.form, "protocol": PROTOCOL, "nonce": nonce}
    if hello.form == "adp_handshake":
        return dump_json({**common, "agent_id": me.agent, "public_key": me.fingerprint}).decode()
    kind = "system" if hello.form == "handshake" else hello.form
    timestamp = to_rfc3339(at)
    signature = sign(me.key, signing_input(message_id, me.agent, hello.agent, kind, timestamp))
    body = {"content": "", "action": "handshake"} if hello.form == "handshake" else {"content": ""}
    signed = {"from": me.agent, "to": hello.agent, "timestamp": timestamp, "signature": signature}
    return dump_json(
        {**common, **signed, "type": kind, "agent": me.agent, "fingerprint": me.fingerprint, "body": body}
    ).decode()


def _fingerprint(value: object) -> str:
    if not isinstance(value, str) or not FINGERPRINT.match(value):
        raise InvalidDocument(
            "The fingerprint is not `ed25519:` and 43 base64url characters.",
            path="$.body.content.fingerprint",
            hint="Use the SHA-256 of the 32 bytes of the key.",
        )
    return value


def _nonce(value: object, name: str) -> str:
    minimum, maximum = limits.AGP_NONCE_CHARS
    if not isinstance(value, str) or not minimum <= len(value) <= maximum or not _NONCE.match(value):
        raise InvalidDocument(
            f"The {name} is not base64url of 16 random bytes or more.",
            path=f"$.body.content.{name}",
            hint="Use a random one.",
        )
    return value


def _raw(value: object) -> bytes | None:
    if not isinstance(value, str) or not _RAW.match(value):
        return None
    return urlsafe_b64decode(value + "=")

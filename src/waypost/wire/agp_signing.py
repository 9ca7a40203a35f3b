"""What a signature of AGP covers, and how it is written (adp.md §6.5, §6.7).

Six texts with line feeds between them. A control character in one of the first five would let two messages share one
input, so none is signed or verified (P-3); `content` comes last and may hold any text. Whose key it is, and when it was
signed, is asked elsewhere.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from waypost import limits
from waypost.errors import InvalidDocument

PREFIX = "ed25519:"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_PLAIN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # the same but for what parts them
_URLSAFE = bytes.maketrans(b"-_+/", b"+/!!")  # of base64url alone: the others are no characters of it
_TO_URLSAFE = bytes.maketrans(b"+/", b"-_")
_CHARS = len(PREFIX) + 86  # 64 bytes
_LAST = frozenset("AQgw")  # no bits after the last byte


class SigningKey(Protocol):
    def sign(self, data: bytes) -> bytes: ...

    def sign_each(self, texts: Sequence[bytes]) -> list[bytes]: ...


Sharing: TypeAlias = Callable[
    [Callable[[bytes], bytes], Sequence[bytes]], Sequence[bytes]
]  # as `map`, in whatever order


class VerifyingKey(Protocol):
    def verify(self, signature: bytes, data: bytes) -> bool: ...


def signing_input(message_id: str, from_: str, to: str, kind: str, timestamp: str, content: str = "") -> bytes:
    """The bytes that are signed (ADP-42). `kind` is the message's `type`; a missing content counts as empty."""
    head = f"{message_id}\n{from_}\n{to}\n{kind}\n{timestamp}\n"
    if head.count("\n") != 5 or _NOT_PLAIN.search(head):
        require_plain(id=message_id, **{"from": from_}, to=to, type=kind, timestamp=timestamp)
    try:
        return (head + content).encode()
    except UnicodeEncodeError:
        raise InvalidDocument(
            "The content holds half of a surrogate pair.", path="$.body.content", hint="Send the whole character."
        ) from None


def require_plain(**members: str) -> None:
    """Refuse control characters, by the name of the member that holds one (P-3 a)."""
    for name, value in members.items():
        if _CONTROL.search(value):
            raise InvalidDocument(
                f"The member {name!r} holds a control character.",
                path=f"$.{name}",
                hint="Only the content may hold line feeds: it comes last in what is signed.",
            )


def sign(key: SigningKey, covered: bytes) -> str:
    """The signature as it is written (ADP-43)."""
    return _written(key.sign(covered))


def sign_each(key: SigningKey, covered: Sequence[bytes], sharing: Sharing) -> list[str]:
    """The same of several messages that leave together. Long ones are shared with whoever helps: they are hashed twice."""
    is_long = sum(map(len, covered)) >= limits.AGP_SHARED_BYTES
    signatures = sharing(key.sign, covered) if is_long else key.sign_each(covered)
    return [_written(signature) for signature in signatures]


def _written(signature: bytes) -> str:
    return PREFIX + b2a_base64(signature, newline=False).translate(_TO_URLSAFE, b"=").decode("ascii")


def verify(key: VerifyingKey, signature: str, covered: bytes) -> bool:
    """Whether `key` signed it. A signature in any other form than ours never holds."""
    raw = find_signature(signature)
    return raw is not None and key.verify(raw, covered)


def find_signature(text: object) -> bytes | None:
    """The 64 bytes of a signature, or None for what is none."""
    if not isinstance(text, str) or len(text) != _CHARS or text[-1] not in _LAST or not text.startswith(PREFIX):
        return None
    try:
        return a2b_base64(text[len(PREFIX) :].encode("ascii").translate(_URLSAFE) + b"==", strict_mode=True)
    except ValueError:  # a character that is none of base64url
        return None

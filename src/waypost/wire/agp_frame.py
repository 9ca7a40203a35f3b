"""A message in the one form in which we write it: the fast way in, for frames that are written like ours.

Reading JSON strictly is slow. But a frame that is, byte for byte, what we would write for what was read in it has no second
reading: no member twice, none that we do not know, no number, no half of a surrogate pair. Any other frame is left to the strict
reader, which also tells what is wrong with it. Nothing is judged here.

Plain frames, of ASCII with nothing that JSON escapes, are read and written by a kernel where it is compiled. Its twins are here.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from waypost.model.json import dump_json


class FrameBody(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    content: str
    content_type: str
    reply_to: str | None = None
    more: bool = False


class Frame(msgspec.Struct, frozen=True, rename={"sender": "from", "kind": "type"}, gc=False):
    """The members in the order in which they are written."""

    id: str
    sender: str
    to: str
    kind: str
    timestamp: str
    signature: str
    body: FrameBody


_LONG = 1024  # bytes; below it the way of looking is shorter than the choice of one
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Frame).decode


def find_frame(data: bytes) -> Frame | None:
    """What a frame says that is written as we write; None for one that says more, or says it in another way."""
    try:
        frame = _decode(data)
        written = _encode(frame) if len(data) < _LONG or b"\\" in data else _unescaped(frame)
        return frame if written == data else None
    except (msgspec.DecodeError, UnicodeError):
        return None


def _unescaped(frame: Frame) -> bytes:
    """The same as `_encode` writes, of a frame that was read where nothing was escaped: so nothing has to be, and the text
    need not be looked through a second time."""
    body = frame.body
    reply_to = "" if body.reply_to is None else f',"replyTo":"{body.reply_to}"'
    more = ',"more":true' if body.more else ""
    return (
        f'{{"id":"{frame.id}","from":"{frame.sender}","to":"{frame.to}","type":"{frame.kind}",'
        f'"timestamp":"{frame.timestamp}","signature":"{frame.signature}",'
        f'"body":{{"content":"{body.content}","contentType":"{body.content_type}"{reply_to}{more}}}}}'
    ).encode()


def write_frame(frame: Frame) -> str:
    body = frame.body
    plain = write_parts(
        frame.id,
        frame.sender,
        frame.to,
        frame.kind,
        frame.timestamp,
        frame.signature,
        body.content,
        body.content_type,
        body.reply_to,
        body.more,
    )
    return plain if plain is not None else _write_any(frame)


def _write_any(frame: Frame) -> str:
    try:
        return _encode(frame).decode()
    except UnicodeEncodeError:  # half of a surrogate pair in what is not signed
        return dump_json(msgspec.to_builtins(frame)).decode()


def find_plain(text: str) -> tuple[Frame, bytes] | None:
    """What a plain frame says, and what its signature is over."""
    found = find_parts(text)
    if found is None:
        return None
    return Frame(*found[:6], FrameBody(*found[6:10])), found[10]


# --- The twins of the kernel ----------------------------------------------------------------------

Parts: TypeAlias = tuple[str, str, str, str, str, str, str, str, str | None, bool, bytes]


def plain_find_parts(frame: str) -> Parts | None:
    if not frame.isascii() or "\\" in frame or "\x7f" in frame:
        return None
    found = find_frame(frame.encode())
    if found is None:
        return None
    head, body = (found.id, found.sender, found.to, found.kind, found.timestamp), found.body
    covered = "\n".join((*head, body.content)).encode()
    return *head, found.signature, body.content, body.content_type, body.reply_to, body.more, covered


def plain_write_parts(
    message_id: str,
    sender: str,
    to: str,
    kind: str,
    timestamp: str,
    signature: str,
    content: str,
    content_type: str,
    reply_to: str | None,
    more: bool,
) -> str | None:
    texts = (message_id, sender, to, kind, timestamp, signature, content, content_type, reply_to or "")
    if not all(_is_plain(text) for text in texts):
        return None
    return _write_any(Frame(*texts[:6], FrameBody(content, content_type, reply_to, more)))


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and '"' not in text and "\\" not in text


try:
    from waypost.compiled.frames import find_parts, write_parts
except ImportError:
    find_parts, write_parts = plain_find_parts, plain_write_parts

"""Frames in the form in which we write them: what the kernel reads and writes is what its twins do, and nobody is misread."""

from __future__ import annotations

import hashlib
import json

import pytest

from waypost.client.text_frames import plain_frame_text
from waypost.wire.agp import NOBODY, parse_message
from waypost.wire.agp_frame import Parts, find_parts, plain_find_parts, plain_write_parts, write_parts

HEAD = ("id-1", "agent:a.example", "agent:b.example", "chat", "2026-06-18T10:00:00Z", "ed25519:" + "A" * 86)
TEXTS = [
    "",
    "x",
    "hello there",
    "x" * 5000,
    'a "word"',
    "back\\slash",
    "line\nfeed",
    "tab\t",
    "\x7f",
    "\x00",
    "é",
    "漢字",
    "😀",
]
PLAIN = (True, True, True, True) + (False,) * 9


def frames() -> list[str]:
    """Written plainly, and in every other way that stands for the same or nearly so."""
    found = []
    for content in TEXTS:
        for more in (
            {},
            {"replyTo": "id-0"},
            {"more": True},
            {"replyTo": "id-0", "more": True},
            {"more": False},
            {"replyTo": None},
        ):
            document = dict(zip(("id", "from", "to", "type", "timestamp", "signature"), HEAD, strict=True))
            whole = {**document, "body": {"content": content, "contentType": "text/plain", **more}}
            found += [
                json.dumps(whole, separators=(",", ":"), ensure_ascii=False),
                json.dumps(whole, separators=(",", ":")),
                json.dumps(whole),
                json.dumps(dict(reversed(whole.items())), separators=(",", ":")),
                json.dumps({**whole, "other": 1}, separators=(",", ":")),
            ]
    return found


def mutilated(frame: str) -> list[str]:
    places = [int.from_bytes(hashlib.sha256(f"{at}".encode()).digest()[:4], "big") % len(frame) for at in range(300)]
    strokes = ['"', "\\", "}", ",", "\n", "é", "\x7f", "", "x"]
    return [frame[:place] + strokes[at % 9] + frame[place + at % 2 :] for at, place in enumerate(places)]


def test_every_frame_is_read_by_the_kernel_as_by_its_twin() -> None:
    whole = frames()
    read = [find_parts(frame) for frame in whole]
    assert read == [plain_find_parts(frame) for frame in whole]
    assert 12 <= sum(parts is not None for parts in read) <= len(whole) // 4
    for frame in (whole[35], whole[65]):
        for part in (*mutilated(frame), *(frame[:end] for end in range(len(frame)))):
            assert find_parts(part) == plain_find_parts(part), part


def test_what_is_read_says_what_json_says_and_what_is_signed() -> None:
    for frame in frames():
        parts = find_parts(frame)
        if parts is None:
            continue
        document = json.loads(frame)
        body = document["body"]
        assert parts[:6] == tuple(document[name] for name in ("id", "from", "to", "type", "timestamp", "signature"))
        assert parts[6:10] == (body["content"], "text/plain", body.get("replyTo"), body.get("more", False))
        assert parts[10] == "\n".join((*HEAD[:5], body["content"])).encode()


@pytest.mark.parametrize("reply_to", [None, "id-0", "", "é", 'a"b'])
@pytest.mark.parametrize("more", [False, True])
def test_every_message_is_written_by_the_kernel_as_by_its_twin(reply_to: str | None, more: bool) -> None:
    for content, is_plain in zip(TEXTS, PLAIN, strict=True):
        frame = write_parts(*HEAD, content, "text/plain", reply_to, more)
        assert frame == plain_write_parts(*HEAD, content, "text/plain", reply_to, more)
        assert (frame is not None) == (is_plain and reply_to in (None, "id-0", ""))
        if frame is not None:
            parts: Parts | None = find_parts(frame)
            assert parts is not None
            assert parts[6:10] == (content, "text/plain", reply_to, more)


def test_a_message_is_the_same_however_its_frame_is_written() -> None:
    body = {"content": "hello", "contentType": "text/plain"}
    document = {**dict(zip(("id", "from", "to", "type", "timestamp", "signature"), HEAD, strict=True)), "body": body}
    plain, spaced = json.dumps(document, separators=(",", ":")), json.dumps(document)
    parse_message(spaced)  # its agents are known from now on
    assert find_parts(plain) is not None
    assert parse_message(plain) == parse_message(spaced)
    assert parse_message(plain).sender != NOBODY


def test_a_text_is_framed_by_the_kernel_as_by_its_twin() -> None:
    frames = pytest.importorskip("waypost.compiled.frames")
    for size in (0, 1, 7, 8, 9, 125, 126, 127, 65_534, 65_535, 65_536, 70_001):
        for text in ("x" * size, ("é" * size)[: size // 2 + 1]):
            for mask in (None, b"\0\0\0\0", b"\x01\x80\xff\x7e"):
                assert frames.frame_text(text, mask) == plain_frame_text(text, mask)
    with pytest.raises(UnicodeEncodeError):
        frames.frame_text("\ud800", None)
    with pytest.raises(ValueError, match="four bytes"):
        frames.frame_text("x", b"abc")

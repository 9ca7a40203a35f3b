"""AGP messages, greetings and invitations of ADP: nothing that was not signed verifies."""

from __future__ import annotations

from contextlib import suppress

from support.signing import key_of
from waypost.errors import WaypostError
from waypost.protocols.adp.agp.hello import find_hello
from waypost.protocols.adp.agp.messages import (
    acknowledged_ids,
    check_time,
    claimed_sender,
    find_error_code,
    parse_message,
    read_action,
    read_frame,
    verify,
)
from waypost.protocols.adp.invitation import parse_invitation

KEY = key_of().public


def fuzz(data: bytes) -> None:
    frame = data.decode("utf-8", "surrogateescape")
    find_error_code(frame)
    with suppress(WaypostError):
        document = read_frame(frame)
        claimed_sender(document)
        find_hello(document)
    with suppress(WaypostError):
        parse_invitation(read_frame(frame))
    with suppress(WaypostError):
        message = parse_message(frame)
        assert b"\0" not in message.signing_input
        assert not verify(KEY, message.signature, message.signing_input)
        acknowledged_ids(message)
        with suppress(WaypostError):
            check_time(message, 1.7e9)
        read_action(message)

"""Which paths are WebSockets, and how many are open in this process. What reads their frames is loaded with the first one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from waypost.late import late_module

if TYPE_CHECKING:
    from waypost.server import socket_frames
else:
    socket_frames = late_module("waypost.server.socket_frames")


class OpenSockets:
    """Sessions have a bound of their own, and take no place of a request."""

    count = 0


def announcing(**given: Any) -> socket_frames.SocketProtocol:
    return socket_frames.SocketProtocol(**given)


def conversing(**given: Any) -> socket_frames.ConversationProtocol:
    return socket_frames.ConversationProtocol(**given)


PROTOCOLS: dict[bytes, Callable[..., socket_frames.SocketProtocol]] = {b"/ws": announcing, b"/agent/chat": conversing}

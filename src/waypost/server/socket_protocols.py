"""Which paths are WebSockets, and how many are open in this process. The protocol classes are loaded with the first one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from waypost.late import late_module

if TYPE_CHECKING:
    from waypost.server import bounded_socket
else:
    bounded_socket = late_module("waypost.server.bounded_socket")


class OpenSockets:
    """Sessions have a bound of their own, and take no place of a request."""

    count = 0


def announcing(**given: Any) -> bounded_socket.BoundedSocket:
    return bounded_socket.BoundedSocket(**given)


def conversing(**given: Any) -> bounded_socket.ConversationSocket:
    return bounded_socket.ConversationSocket(**given)


PROTOCOLS: dict[bytes, Callable[..., bounded_socket.BoundedSocket]] = {b"/ws": announcing, b"/agent/chat": conversing}

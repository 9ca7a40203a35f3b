"""Every byte that reaches an interface of a network namespace."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ALL_PROTOCOLS = 3  # ETH_P_ALL


class PacketCapture:
    def __init__(self, interface: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 20)
        self._socket.bind((interface, 0))
        self._socket.settimeout(0.2)
        self._data = bytearray()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._data += self._socket.recv(65536)
            except TimeoutError:
                continue

    def stop(self) -> bytes:
        self._is_over.set()
        self._thread.join()
        self._socket.close()
        return bytes(self._data)


@contextmanager
def capture(interface: str) -> Iterator[PacketCapture]:
    """Of the namespace that the thread is in."""
    made = PacketCapture(interface)
    try:
        yield made
    finally:
        made.stop()

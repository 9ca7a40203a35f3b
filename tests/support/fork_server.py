"""A process that has imported the whole command, and forks for each command line.

A fork has its own pipes, folder, environment, exit code and signals. It only saves importing a few hundred modules, which
takes longer than nearly every command. `support.command_process` starts this process; it exits with its parent.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

_MESSAGE_BYTES = 1 << 20  # arguments and environment


def load() -> None:
    for name in ("waypost.cli.commands", "waypost.cli", "waypost.client", "waypost.client.sync", "waypost.client.aio"):
        package = import_module(name)
        for module in iter_modules(package.__path__):
            import_module(f"{name}.{module.name}")
    import_module("waypost.app")
    gc.collect()
    gc.freeze()


class Copied(Exception):  # no error: the way out of the loop, for a copy
    """Raised in a fork to leave the loop of the server."""


class Copier:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._asked: dict[int, socket.socket] = {}  # by process: who wants to know how it ended
        self._selector = selectors.DefaultSelector()
        self._ended, wakeup = socket.socketpair()
        for each in (self._ended, wakeup):
            each.setblocking(False)
        self._wakeup = wakeup

    def serve(self) -> None:
        """Serve until stdin is closed, that is, until the test run ends."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._wakeup.fileno())
        for source in (self._listener, self._ended, sys.stdin):
            self._selector.register(source, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._ended in ready:
                self._ended.recv(4096)
                self._tell()
            if sys.stdin in ready:
                self._end_all()
                return
            if self._listener in ready:
                self._copy(self._listener.accept()[0])

    def _end_all(self) -> None:
        """Kill the forks, so that an aborted test run leaves no process behind."""
        self._tell()
        for pid in self._asked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _tell(self) -> None:
        while self._asked:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._asked.pop(pid) as asked, suppress(OSError):  # the parent may be gone
                asked.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _copy(self, asked: socket.socket) -> None:
        message, files, _, _ = socket.recv_fds(asked, _MESSAGE_BYTES, 3)
        if not message:
            asked.close()  # thought better of it
            return
        wanted = json.loads(message)
        pid = os.fork()
        if not pid:
            self._become(wanted, files)
        for file in files:
            os.close(file)
        self._asked[pid] = asked
        with suppress(OSError):
            asked.send(str(pid).encode())

    def _become(self, wanted: dict[str, object], files: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for each in (self._listener, self._ended, self._wakeup, *self._asked.values()):
            each.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(wanted["environment"])  # type: ignore[call-overload]
        os.chdir(str(wanted["folder"]))
        sys.argv = [str(Path(str(import_module("waypost").__file__)).with_name("__main__.py")), *wanted["arguments"]]  # type: ignore[misc]
        raise Copied


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))  # those who ask before all is loaded wait in it
    load()
    try:
        Copier(listener).serve()
    except Copied:
        pass
    else:
        return
    import_module("waypost.cli.main").run()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Show which source files one request runs through, in order: a measure of how far a reader has to walk.

    scripts/trace_request.py            the number of files and of folder changes, for a registration and a search
    scripts/trace_request.py --files    also each file, in the order of its first call

The service runs in this process over its SQLite store. The first request of each kind warms caches and lazy imports; the
second one is traced. A folder change is a function call whose file lies in another folder than the call before it.

Counted is what the request causes: calls in its task, in callbacks and tasks that it starts, and in the group commit that
makes it durable and applies it. Periodic jobs that happen to run at the same time are not.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx2

import waypost
from waypost.app import build
from waypost.settings import Settings

PACKAGE = Path(waypost.__file__).parent
GROUP_COMMIT = "stores/sqlite/group_commit.py"  # ends on a thread and is continued from there, without the context

# Callbacks and tasks inherit it from the request that starts them.
is_traced: ContextVar[bool] = ContextVar("is_traced", default=False)


class CallTrace:
    """Records the source file of each function of the package that a request calls, on every thread."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (name := source_file(frame.f_code)) is not None and is_of_request(frame):
            self.files.append(name)

    def __enter__(self) -> CallTrace:
        self._token = is_traced.set(True)
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        is_traced.reset(self._token)

    @property
    def distinct(self) -> list[str]:
        return list(dict.fromkeys(self.files))

    @property
    def folder_changes(self) -> int:
        folders = [name.rpartition("/")[0] for name in self.files]
        return sum(before != after for before, after in pairwise(folders))


def source_file(code: CodeType) -> str | None:
    path = Path(code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None


def is_of_request(frame: FrameType | None) -> bool:
    if is_traced.get():
        return True
    while frame is not None:
        if source_file(frame.f_code) == GROUP_COMMIT:
            return True
        frame = frame.f_back
    return False


def agent(number: int) -> dict[str, Any]:
    return {
        "id": f"https://agents.example.com/translator-{number}",
        "name": f"Invoice translator {number}",
        "description": "Translates invoices between Spanish and English.",
        "tags": ["finance", "translation"],
        "bindings": [{"protocol": "https", "endpoint": f"https://agents.example.com/translator-{number}/call"}],
    }


async def trace(folder: Path) -> dict[str, CallTrace]:
    application = build(Settings(data=folder, embedder="none"))
    await application.start()
    token = (folder / "admin.token").read_text(encoding="utf-8").strip()
    transport = httpx2.ASGITransport(app=application.app)
    headers = {"Authorization": f"Bearer {token}"}
    traces = {}
    async with httpx2.AsyncClient(transport=transport, base_url=application.base_url, headers=headers) as client:

        async def register(number: int) -> None:
            (await client.post("/api/v1/agents", json=agent(number))).raise_for_status()

        async def discover(number: int) -> None:
            request = {"query": f"translate invoice {number}", "limit": 5}
            (await client.post("/profile/v1/discover", json=request)).raise_for_status()

        for name, call in {"POST /api/v1/agents": register, "POST /profile/v1/discover": discover}.items():
            await call(1)
            with CallTrace() as traced:
                await call(2)
            traces[name] = traced
    await application.stop()
    return traces


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        traces = asyncio.run(trace(Path(folder)))
    for name, traced in traces.items():
        print(f"{name}: {len(traced.distinct)} files, {traced.folder_changes} folder changes")
        if "--files" in arguments:
            print("\n".join(f"    {file}" for file in traced.distinct))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Search results among the sample agents with their evidence, as JSON lines. With `plain`, without compiled kernels.

python fallback_answers.py [plain]
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import httpx2

_NOW = 1_780_000_000.0
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"query": "translate a contract from German"},
    {"query": "book a flight and a hotel, then tell me the weather"},
    {"query": "summarise my invoices", "preferred_tags": ["finance"]},
    {"query": "resize pictures", "limit": 3},
    {"query": "what does 'order' mean in SQL"},
    {"query": "übersetze einen Vertrag"},
    {"query": "translation", "required_tags": ["translation"]},
    {"query": "zzz qqq xxx"},
    {"query": "send an email to the whole team", "diversity": False},
)


class NoKernels(MetaPathFinder):
    """Hides the compiled kernels, as if they had not been built."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if fullname.startswith("waypost.search.kernels.") and not fullname.endswith("_fallback"):
            raise ImportError(f"{fullname} was not compiled")


async def answers(data: Path) -> list[Any]:
    from waypost.app import build
    from waypost.net.clock import ManualClock
    from waypost.settings import Settings

    application = build(
        Settings(data=data, store="memory", embedder="none", open=True, samples=True, health_checks=False),
        clock=ManualClock(_NOW),
    )
    await application.start()
    try:
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(application.http_app), base_url=application.base_url
        ) as client:
            await application.registry.searchable()
            return [await _asked(client, question) for question in QUESTIONS]
    finally:
        await application.stop()


async def _asked(client: httpx2.AsyncClient, question: dict[str, Any]) -> Any:
    answer = await client.post("/profile/v1/discover", json={**question, "include_evidence": True})
    found = answer.raise_for_status().json()
    return found["candidates"]


if __name__ == "__main__":
    if sys.argv[1:] == ["plain"]:
        sys.meta_path.insert(0, NoKernels())
    with tempfile.TemporaryDirectory() as folder:
        for line in asyncio.run(answers(Path(folder))):
            print(json.dumps(line, ensure_ascii=False))

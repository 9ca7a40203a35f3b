"""The sync client is generated from the async one."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

from waypost import Client, SyncClient

ROOT = Path(__file__).resolve().parents[3]


def test_the_sync_client_is_generated_from_the_async_one() -> None:
    check = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "unasync.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def shape(kind: type) -> dict[str, list[str]]:
        methods = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(value).parameters) for name, value in methods if not name.startswith("_")}

    ours, twin = shape(Client), shape(SyncClient)
    ours["close"] = ours.pop("aclose")
    assert ours == twin


def test_nothing_of_the_sync_client_awaits() -> None:
    for _, value in inspect.getmembers(SyncClient, inspect.isfunction):
        assert not inspect.iscoroutinefunction(value)
        assert not inspect.isasyncgenfunction(value)

"""A new store is a module and one row: with the row of `support.toy_store`, the service keeps its records in the toy.

The contract suites run over the toy, too (conftest.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx2
import msgspec
import pytest

from support.server import clean_environment, running_server
from support.service import profile
from support.toy_store import ROW
from waypost.errors import ConfigurationError
from waypost.settings import Settings
from waypost.settings.service import STORES

ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_service_keeps_its_records_in_the_toy(tmp_path: Path) -> None:
    flags = ("--store", "toy")
    with running_server(*flags, data=tmp_path, environment=ENVIRONMENT, module="support.toy_store") as server:
        made = httpx2.post(f"{server.url}/api/v1/agents", json=profile("urn:agent:toy"), headers=server.headers)
        assert made.status_code == 201
    assert (tmp_path / "toy.pickle").exists()
    assert not (tmp_path / "waypost.sqlite3").exists()
    with running_server(*flags, data=tmp_path, environment=ENVIRONMENT, module="support.toy_store") as server:
        found = httpx2.get(f"{server.url}/api/v1/agents/urn:agent:toy", headers=server.headers)
        assert found.json()["id"] == "urn:agent:toy"
        asked = {"query": "short factual questions"}
        answer = httpx2.post(f"{server.url}/profile/v1/discover", json=asked, headers=server.headers)
        assert [candidate["id"] for candidate in answer.json()["candidates"]] == ["urn:agent:toy"]


def test_the_command_offers_the_toy(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "support.toy_store", "serve", "--help-all"]
    shown = subprocess.run(command, cwd=tmp_path, env=clean_environment(ENVIRONMENT), capture_output=True, check=True)
    assert "[sqlite|memory|postgresql://…|toy]" in shown.stdout.decode()


def test_only_a_durable_store_has_several_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(STORES, "toy", msgspec.structs.replace(ROW, is_durable=False))
    with pytest.raises(ConfigurationError):
        Settings(data=tmp_path, store="toy", workers=2)

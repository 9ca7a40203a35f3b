#!/usr/bin/env python3
"""Write a data folder with the code of release 0.1, for tests/service/test_upgrade.py.

    scripts/make_upgrade_data.py            write tests/data/upgrade/0.1.tar.xz
    scripts/make_upgrade_data.py --source DIR   take the code of 0.1 from a checkout instead of the history

The archive holds `data` (the folder as 0.1 left it) and `manifest.json` (what 0.1 answered about it). The clock of the service is
set by hand, so that tokens and leases are still valid when the test opens the folder at the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

RELEASE = "9c0dc07"
ROOT = Path(__file__).resolve().parent.parent
ARCHIVE = ROOT / "tests" / "data" / "upgrade" / "0.1.tar.xz"
NOW = 1_780_000_000.0  # 2026-05-28
ANNOUNCED = "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d"
ORIGIN = "https://agents.example.net/id"
DIALECTS = ("profile", "af", "rtfs", "announce", "adp", "a2a", "ard", "mcp", "oasf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", type=Path, help="a checkout of release 0.1")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)  # this process runs the code of 0.1
    arguments = parser.parse_args()
    if arguments.inside:
        asyncio.run(write(arguments.inside))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = arguments.source or _checkout(folder / "source")
        (folder / "made").mkdir()
        environment = {**os.environ, "PYTHONPATH": f"{source / 'src'}:{ROOT / 'tests'}"}
        command = [sys.executable, __file__, "--inside", str(folder / "made")]
        subprocess.run(command, env=environment, check=True)
        _pack(folder / "made")
    print(f"{ARCHIVE.relative_to(ROOT)}: {ARCHIVE.stat().st_size:,} bytes")


def _checkout(folder: Path) -> Path:
    folder.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", RELEASE], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder


def _pack(made: Path) -> None:
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(ARCHIVE, "w:xz") as archive:
        for path in (made / "manifest.json", made / "data"):
            archive.add(path, path.name, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(NOW)
    return member


# The rest runs with the code of 0.1.


async def write(folder: Path) -> None:
    import httpx

    import waypost
    from waypost.app import build, mint_locally
    from waypost.net.clock import ManualClock
    from waypost.settings import Settings

    assert waypost.__version__ == "0.1.0", f"this is {waypost.__version__}"
    clock = ManualClock(NOW)
    settings = Settings(data=folder / "data", store="sqlite", embedder="none")
    application = build(settings, clock=clock)
    await application.start()
    scopes = ("discover:read", "discover:write")
    tokens = {name: mint_locally(settings, name, scopes, 3600, clock=clock)[0] for name in ("alice", "bob", "carol")}
    tokens["admin"] = (settings.data / "admin.token").read_text().strip()
    clients = {
        name: httpx.AsyncClient(
            transport=httpx.ASGITransport(application.service),
            base_url=application.base_url,
            headers={"Authorization": f"Bearer {token}"},
        )
        for name, token in tokens.items()
    }
    await _fill(clients, clock)
    manifest = await _describe(application.service, clients, tokens)
    for client in clients.values():
        await client.aclose()
    await application.stop()
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False))


async def _fill(clients: dict[str, Any], clock: Any) -> None:
    from waypost.trust.signing import new_key, sign_announcement, sign_profile

    alice, bob, admin = clients["alice"], clients["bob"], clients["admin"]
    signing = new_key("ed25519", hashlib.sha256(b"alice").digest())
    other = new_key("ed25519", hashlib.sha256(b"pinned").digest())
    lost = new_key("ed25519", hashlib.sha256(b"lost").digest())

    translator = _profile("translator", "Invoice Translator", "Translates invoices into German.", ["finance"])
    await _post(alice, "/api/v1/agents", translator)
    await _post(alice, "/api/v1/agents", _profile("draft", "Draft", "Is not finished.", []), visibility="private")
    await _post(alice, "/api/v1/agents/https:%2F%2Fagents.example.net%2Fid%2Fdraft:share", {"add": ["bob"]})
    await _post(admin, "/api/v1/agents/https:%2F%2Fagents.example.net%2Fid%2Fdraft:host", {"domain": "draft.example"})
    await _post(
        bob, "/api/v1/agents", _profile("staff", "Staff Desk", "Books holidays.", ["hr"]), visibility="internal"
    )
    signed = sign_profile(_profile("signed", "Signed Agent", "Signs what it says.", ["trust"]), signing)
    await _post(alice, "/api/v1/agents", signed)
    card = {
        "name": "Recipe Agent", "description": "Finds recipes.", "version": "1.0.0",
        "supportedInterfaces": [
            {"url": "https://recipes.example.com/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "capabilities": {"streaming": True}, "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "find", "name": "Find", "description": "Finds a recipe.", "tags": ["food"]}],
    }  # fmt: skip
    await _post(bob, "/api/v1/agents", card)
    server = {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "io.github.example/files", "description": "Reads and writes files.", "version": "0.9.1",
        "remotes": [{"type": "streamable-http", "url": "https://files.example.com/mcp"}],
    }  # fmt: skip
    await _post(bob, "/api/v1/agents", server)
    await _post(admin, "/api/v1/allow", {"rule": ANNOUNCED})
    agent = {
        "agent_id": ANNOUNCED, "agent_name": "data-processor", "capabilities": {"metrics": "2.0"},
        "transport": {"type": "tcp", "endpoint": "10.0.0.12:9000"}, "ttl": 3600,
    }  # fmt: skip
    await _post(alice, "/agents", sign_announcement(agent, signing, now=clock.now()))
    await _post(admin, "/api/v1/keys", {"agent_id": "agent:pinned.example", "public_key": other.public.pem()})
    await _post(admin, "/api/v1/keys:revoke", {"key_id": lost.public.key_id, "reason": "lost"})
    clock.advance(5)
    await _post(alice, "/api/v1/agents", {**translator, "description": "Translates invoices into German and French."})
    await _post(bob, "/api/v1/agents", _profile("gone", "Gone", "Was withdrawn.", []))
    answer = await bob.delete("/api/v1/agents/https:%2F%2Fagents.example.net%2Fid%2Fgone")
    assert answer.is_success, answer.text


def _profile(name: str, title: str, description: str, tags: list[str]) -> dict[str, Any]:
    return {
        "id": f"{ORIGIN}/{name}", "name": title, "description": description, "tags": tags,
        "bindings": [{"protocol": "https", "endpoint": f"https://agents.example.net/{name}"}],
        "examples": [{"text": f"{description} Please."}], "x-own-member": {"kept": [1, 2.5, "three"]},
    }  # fmt: skip


async def _post(client: Any, path: str, document: dict[str, Any], visibility: str = "public") -> None:
    answer = await client.post(path, json=document, headers={"Waypost-Visibility": visibility})
    assert answer.is_success, (path, answer.status_code, answer.text)


async def _listed(client: Any, **params: str) -> list[str]:
    answer = await client.get("/api/v1/agents", params={"limit": "200", **params})
    return sorted(agent["id"] for agent in answer.json()["agents"])


async def _describe(service: Any, clients: dict[str, Any], tokens: dict[str, str]) -> dict[str, Any]:
    from support.server_sent_events import read_events

    admin = clients["admin"]
    listed = {name: await _listed(client) for name, client in clients.items()}
    agents = {}
    for agent_id in listed["admin"]:
        forms = {}
        for dialect in DIALECTS:
            answer = await admin.get(f"/api/v1/agents/{agent_id.replace('/', '%2F')}", params={"as": dialect})
            assert answer.is_success, answer.text
            forms[dialect] = {"etag": answer.headers["ETag"], "body": answer.text}
        agents[agent_id] = forms
    owned = {name: await _listed(admin, owner=name) for name in ("alice", "bob")}
    first_page = (await admin.get("/api/v1/agents", params={"limit": "3"})).json()
    events = {
        name: await read_events(service, "/api/v1/watch", tokens[name], count, **{"from": "0"})
        for name, count in (("alice", 12), ("carol", 9))
    }
    invited = await clients["alice"].post("/api/v1/invitations", json={"agent": f"{ORIGIN}/draft", "uses": 1})
    assert invited.is_success, invited.text
    return {
        "release": "0.1.0",
        "now": NOW,
        "tokens": {name: token for name, token in tokens.items() if name != "admin"},
        "listed": listed,
        "agents": agents,
        "owned": owned,
        "first_page": {"ids": [agent["id"] for agent in first_page["agents"]], "cursor": first_page["next_cursor"]},
        "revision": (await admin.get("/api/v1/stats")).json()["revision"],
        "invitation": invited.json(),
        "watch": {
            name: [{"cursor": event.cursor, "type": event.type, "id": event.data["id"]} for event in each]
            for name, each in events.items()
        },
        "audit": (await admin.get("/api/v1/audit", params={"limit": 1000})).json()["entries"],
        "checkpoint": (await admin.get("/api/v1/audit/checkpoint", headers={"Accept": "application/json"})).json(),
        "keys": (await admin.get("/api/v1/keys")).json(),
        "allow": (await admin.get("/api/v1/allow")).json(),
        "announced": (await admin.get(f"/agents/{ANNOUNCED}")).json(),
        "identity": (await admin.get("/.well-known/agent.json")).json(),
        "histories": {
            agent_id: (await admin.get(f"/api/v1/agents/{agent_id.replace('/', '%2F')}:history")).json()
            for agent_id in listed["admin"]
        },
    }


if __name__ == "__main__":
    main()

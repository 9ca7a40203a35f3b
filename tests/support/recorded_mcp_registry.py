"""A recorded MCP registry: thousands of servers with several versions each, made from the servers of the shared data set.

Names and descriptions are real; versions, dates, remotes and packages are made, with all the forms that the format allows:
odd version texts, servers without remotes and packages, older snake_case documents, deleted and deprecated versions.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from support.shared import require_shared

OFFICIAL = "io.modelcontextprotocol.registry/official"
_NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+\Z")
_PACKAGES = ("npm", "pypi", "oci", "nuget", "cargo", "mcpb")


class RecordedServer(NamedTuple):
    name: str
    latest: str  # the version that is current
    status: str  # of that version
    entries: list[dict[str, Any]]  # one for each version, as the registry lists them


def record_servers(seed: int = 7) -> list[RecordedServer]:
    path = require_shared("data/retrieval/mcp_servers_real/corpus.jsonl")
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    found = {name: " ".join(row["description"].split()) for row in rows if (name := _name_of(row))}
    dice = random.Random(seed)
    return [_record(name, text or name, dice) for name, text in sorted(found.items())]


def _name_of(row: dict[str, Any]) -> str | None:
    """The id, if it is a server name; else one made of the name."""
    if row["id"] and _NAME.match(row["id"]) and 3 <= len(row["id"]) <= 200:
        return str(row["id"])
    local = re.sub(r"[^a-zA-Z0-9._-]+", "-", row["name"]).strip("-")[:80]
    return f"com.example.recorded/{local}" if local else None


def _record(name: str, description: str, dice: random.Random) -> RecordedServer:
    versions = _versions(dice)
    latest = versions[-1]
    # The registry says which is the latest, or leaves it to the reader; then it is the highest version.
    says_latest = dice.random() < 0.8 or not _is_plain(versions)
    order = dice.sample(versions, len(versions))  # touched in any order
    status = dice.choices(("active", "deprecated", "deleted"), (90, 5, 5))[0]
    entries = [
        {
            "server": _server(name, description, version, dice),
            "_meta": {
                OFFICIAL: {
                    "status": status if version == latest else "active",
                    "publishedAt": _time(place, 0),
                    "updatedAt": _time(len(versions), order.index(version)),
                    **({"isLatest": version == latest} if says_latest else {}),
                }
            },
        }
        for place, version in enumerate(versions)
    ]
    return RecordedServer(name, latest, status, entries)


def _versions(dice: random.Random) -> list[str]:
    """One to six versions, the latest last."""
    count = dice.choice((1, 2, 2, 3, 4, 6))
    kind = dice.random()
    if kind < 0.05:  # a lower number came later: only the registry can say so
        return [f"{dice.choice((0, 1))}.{9 + place}.0" for place in range(count)]
    if kind < 0.75:  # semantic versions, among them 1.10 after 1.9
        return [f"1.{9 + place}.{dice.randrange(3)}" for place in range(count)]
    if kind < 0.85:  # candidates before the release
        return [f"2.0.0-rc.{8 + place}" for place in range(count - 1)] + ["2.0.0"]
    if kind < 0.95:  # dates
        return [f"2026.{place + 1}.{dice.randrange(1, 28)}" for place in range(count)]
    return [f"{word}-{dice.randrange(100)}" for word in ("spring", "summer", "autumn", "winter", "may", "june")[:count]]


def _is_plain(versions: list[str]) -> bool:
    """Whether versions are in the order of semantic versions."""
    if not all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions):
        return False
    numbers = [tuple(map(int, version.split("."))) for version in versions]
    return numbers == sorted(numbers)


def _time(day: int, minute: int) -> str:
    return f"2026-03-{day + 1:02}T00:{minute:02}:00Z"


def _server(name: str, description: str, version: str, dice: random.Random) -> dict[str, Any]:
    server: dict[str, Any] = {"name": name, "description": description[:100].strip() or name, "version": version}
    url = f"https://{name.split('/', maxsplit=1)[0]}.example/{version}/mcp"
    form = dice.random()
    if form < 0.45:
        server["remotes"] = [{"type": dice.choice(("streamable-http", "sse")), "url": url}]
        if dice.random() < 0.3:
            server["remotes"][0]["headers"] = [{"name": "Authorization", "isRequired": True, "isSecret": True}]
    if 0.35 < form < 0.9:
        server["packages"] = [
            {
                "registryType": dice.choice(_PACKAGES),
                "identifier": name.rpartition("/")[2] or "tool",
                "version": version,
                "transport": {"type": "stdio"},
            }
        ]
        if dice.random() < 0.3:
            server["packages"][0]["environmentVariables"] = [{"name": "API_KEY", "isRequired": True, "isSecret": True}]
    if dice.random() < 0.4:
        server["repository"] = {"url": f"https://github.com/{name}", "source": "github"}
    if dice.random() < 0.2:
        server["title"] = name.rpartition("/")[2].replace("-", " ").title()[:100] or name
    if dice.random() < 0.2:
        server["$schema"] = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
    return server


def shuffled(servers: list[RecordedServer], seed: int) -> Iterator[dict[str, Any]]:
    """Every entry, in any order."""
    entries = [entry for server in servers for entry in server.entries]
    random.Random(seed).shuffle(entries)
    return iter(entries)

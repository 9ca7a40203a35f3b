"""A realistic corpus of any size: profile documents made of the names and descriptions of real MCP servers.

The same `n` gives the same documents, everywhere and always. Past the 3,811 servers they come round again, each time with
another name, id, endpoint, and other tags and examples drawn from the server's own words, so that no two are alike.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from support.shared import shared_path

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9+-]{3,30}")
_PLAIN = re.compile(r"[^a-z0-9]+")
_EVERYWHERE = (
    "about access across agent agents allows also based been build built client clients code data each enables from "
    "full have https into just like local model more other over official provides server servers support supports "
    "that their them these they this through tool tools using uses various want when where which while will with "
    "without your"
)
_STOP = frozenset(_EVERYWHERE.split())
_ASKS = (
    "Use {0} to {1} the {2}.",
    "Find {0} for {1} and {2}.",
    "How do I {0} with {1} and {2}?",
    "Show me the {0} of {1}, then the {2}.",
    "Please {0} {1} before {2}.",
    "I need {0} that knows {1} and {2}.",
)
_VARIANTS = ("cloud", "team", "lite", "enterprise", "edge", "labs", "studio", "preview", "community", "plus")
_REGIONS = ("eu", "us", "apac", "global")
_STATUSES = ("active",) * 18 + ("testing", "deprecated")
_PROTOCOLS = ("mcp", "mcp", "https", "a2a+jsonrpc")
_PATHS = {"mcp": "mcp", "https": "invoke", "a2a+jsonrpc": "a2a"}


@cache
def servers() -> tuple[dict[str, Any], ...]:
    """The servers of the shared folder that have an id, with white space normalised."""
    rows = read_json_lines(shared_path("data/retrieval/mcp_servers_real/corpus.jsonl"))
    return tuple({**row, "description": " ".join(row["description"].split())} for row in rows if row["id"])


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, filter(None, path.read_text(encoding="utf-8").split("\n")))


def documents(n: int) -> Iterator[dict[str, Any]]:
    """`n` profile documents, each another agent."""
    rows = servers()
    for index in range(n):
        yield _document(rows[index % len(rows)], index // len(rows), random.Random(index))


def questions(seed: int) -> Iterator[str]:
    """Questions in the words of real servers, without end, and no two alike."""
    rows, dice, asked = servers(), random.Random(seed), set[str]()
    while True:
        words = _words(dice.choice(rows))
        text = dice.choice(_ASKS).format(*(dice.choice(words) for _ in range(3)))
        if text not in asked:
            asked.add(text)
            yield text


def _document(row: dict[str, Any], turn: int, dice: random.Random) -> dict[str, Any]:
    variant = f"-{_VARIANTS[(turn - 1) % len(_VARIANTS)]}-{turn}" if turn else ""
    path = "/".join(_plain(part) for part in row["id"].split("/")) + variant
    words = _words(row)
    document: dict[str, Any] = {
        "id": f"https://agents.example.net/{path}",
        "name": (row["name"] + variant.replace("-", " "))[:128],
        "description": _description(row, words, dice),
        "tags": _tags(row, words, dice),
        "examples": _examples(words, dice),
        "bindings": _bindings(path, dice),
        "status": dice.choice(_STATUSES),
        "version": f"{dice.randint(0, 4)}.{dice.randint(0, 20)}.{dice.randint(0, 9)}",
        "updated_at": f"2025-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}T{dice.randint(0, 23):02}:00:00Z",
    }
    if dice.random() < 0.4:
        document["auth"] = {"schemes": [{"type": "http", "scheme": "bearer"}], "required": True}
    if dice.random() < 0.3:
        document["constraints"] = {"region": dice.choice(_REGIONS)}
    return document


def _plain(text: str) -> str:
    return _PLAIN.sub("-", text.lower()).strip("-") or "agent"


def _words(row: dict[str, Any]) -> list[str]:
    """The server's own words, each once; its name's where it has no description."""
    text = f"{row['description']} {row['name'].replace('-', ' ').replace('_', ' ')}"
    words = dict.fromkeys(word.lower().rstrip("-+") for word in _WORD.findall(text))
    return [word for word in words if word not in _STOP] or [_plain(row["name"])]


def _description(row: dict[str, Any], words: list[str], dice: random.Random) -> str:
    text = row["description"] or f"Works with {' and '.join(words[:3])}."
    return f"{text} Knows {', '.join(_drawn(words, 4, dice))}."[:4096]


def _tags(row: dict[str, Any], words: list[str], dice: random.Random) -> list[str]:
    return list(dict.fromkeys([*(_plain(tag) for tag in row["tags"]), *_drawn(words, dice.randint(2, 5), dice), "mcp"]))


def _examples(words: list[str], dice: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "id": f"ex-{number}",
            "text": ask.format(*(dice.choice(words) for _ in range(3))),
            "tags": _drawn(words, 2, dice),
        }
        for number, ask in enumerate(dice.sample(_ASKS, dice.randint(2, 4)), 1)
    ]


def _bindings(path: str, dice: random.Random) -> list[dict[str, Any]]:
    chosen = dict.fromkeys(dice.choice(_PROTOCOLS) for _ in range(dice.choice((1, 1, 2))))
    return [
        {
            "protocol": protocol,
            "endpoint": f"https://agents.example.net/{path}/{_PATHS[protocol]}",
            "media_types": ["application/json"],
            "interaction_model": "streaming" if protocol == "mcp" else "request-response",
            "priority": priority,
        }
        for priority, protocol in enumerate(chosen)
    ]


def _drawn(words: list[str], count: int, dice: random.Random) -> list[str]:
    return dice.sample(words, min(count, len(words)))

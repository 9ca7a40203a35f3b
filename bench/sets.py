"""The public sets as registrations: what quality is measured on, and what larger corpora are made of.

It knows the files in bench/data (their README says where they come from) and nothing of rankers. Ids become addresses, so
that the same agent can be registered over HTTP; every agent has an owner of its own, as in a public registry.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench.corpus import servers
from waypost import limits
from waypost.model.record import AgentRecord, Binding, Example
from waypost.model.registration import Registration

DATA = Path(__file__).parent / "data"
ORIGIN = "https://agents.example.net"


@dataclass(frozen=True)
class Question:
    text: str
    relevant: frozenset[str]  # ids


@dataclass(frozen=True)
class Set:
    name: str
    agents: tuple[Registration, ...]
    questions: tuple[Question, ...]


def rows(name: str) -> Iterator[dict[str, Any]]:
    """The objects of a file in bench/data, compressed or not."""
    path = DATA / name
    data = path.read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode("utf-8")
    yield from map(json.loads, filter(None, text.split("\n")))


def agent_id(family: str, name: str) -> str:
    return f"{ORIGIN}/{family}/{quote(name, safe='/')}"


def registration(
    family: str, row: dict[str, Any], *, owner: str | None = None, created_at: float = 0.0
) -> Registration:
    """An agent of a row {id, name, description, tags, examples: [text]}."""
    chosen = agent_id(family, row["id"])
    record = AgentRecord(
        id=chosen,
        name=row["name"][:128],
        description=row["description"],
        tags=tuple(row["tags"]),
        examples=tuple(Example(text=text[: limits.EXAMPLE_CHARS]) for text in row.get("examples", ())),
        bindings=(Binding(protocol="https", endpoint=f"{chosen}/invoke"),),
    )
    return registered(record, owner or f"owner-of-{chosen}", created_at)


def made(document: Mapping[str, Any]) -> Registration:
    """An agent of a profile document of `bench.corpus`."""
    row = {**document, "examples": [each["text"] for each in document["examples"]]}
    return registration("made", {**row, "id": document["id"].removeprefix(f"{ORIGIN}/")})


def registered(record: AgentRecord, owner: str, created_at: float = 0.0) -> Registration:
    return Registration(
        record=record,
        owner=owner,
        visibility="public",
        etag="",
        revision=1,
        created_at=created_at,
        changed_at=created_at,
        renewed_at=created_at,
    )


@cache
def public_set(name: str) -> Set:
    """metatool or sealtools, alone."""
    agents = tuple(registration(name, row) for row in rows(f"{name}.corpus.jsonl.gz"))
    asked = tuple(
        Question(row["query"], frozenset(agent_id(name, each) for each in row["relevant"]))
        for row in rows(f"{name}.queries.jsonl.gz")
    )
    return Set(name, agents, asked)


@cache
def haystack() -> tuple[Registration, ...]:
    """Both sets and the real servers together."""
    real = (registration("servers", {**row, "description": row["description"] or row["name"]}) for row in servers())
    return (*public_set("metatool").agents, *public_set("sealtools").agents, *real)


def sampled(questions: Sequence[Question], count: int | None) -> tuple[Question, ...]:
    """`count` questions spread evenly over all of them; all without a count."""
    if count is None or count >= len(questions):
        return tuple(questions)
    return tuple(questions[at * len(questions) // count] for at in range(count))


def text_of(agent: Registration) -> str:
    """Everything that an agent says of itself, as one text: what a quick solution would index."""
    record = agent.record
    return "\n".join([record.name, record.description, *record.tags, *(each.text for each in record.examples)])


def document(agent: Registration) -> dict[str, Any]:
    """The profile document of an agent."""
    record = agent.record
    return {
        "id": record.id,
        "name": record.name,
        "description": record.description,
        "tags": list(record.tags),
        "examples": [{"text": each.text} for each in record.examples],
        "bindings": [{"protocol": each.protocol, "endpoint": each.endpoint} for each in record.bindings],
    }


def ndjson(agents: Iterable[Registration]) -> bytes:
    return b"\n".join(json.dumps(document(agent)).encode() for agent in agents)

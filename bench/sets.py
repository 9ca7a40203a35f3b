"""The labelled data sets as registrations: quality is measured on them, and larger corpora are made of them.

The sets of others are read from the shared folder (`support.shared`), our own from bench/data. Ids become addresses, so that
the same agent can be registered over HTTP; every agent has an owner of its own, as in a public registry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench.corpus import read_json_lines, servers
from support.shared import shared_path
from waypost import limits
from waypost.model.record import AgentRecord, Binding, Example
from waypost.model.registration import Registration

DATA = Path(__file__).parent / "data"
# The labelled sets by family. Sets of a family have questions or agents in common: they are left out together.
FAMILIES = {
    "metatool": ("metatool",),
    "sealtools": ("sealtools",),
    "stabletoolbench": ("stabletoolbench_tool", "stabletoolbench_api"),
    "livemcp": ("livemcp_server", "livemcp_tool"),
    "clinc150": ("clinc150",),
    "bfcl": ("bfcl",),
    "skills_catalogue": ("skills_catalogue",),
}
SETS = tuple(name for names in FAMILIES.values() for name in names)
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
    """The objects of a file in bench/data."""
    return read_json_lines(DATA / name)


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
    """A labelled set of the shared folder, such as `metatool` or `sealtools`."""
    folder = shared_path(f"data/retrieval/{name}")
    agents = tuple(
        registration(name, {**row, "examples": [example["text"] for example in row["examples"]]})
        for row in read_json_lines(folder / "corpus.jsonl")
    )
    questions = tuple(
        Question(row["query"], frozenset(agent_id(name, each) for each in row["relevant_ids"]))
        for row in read_json_lines(folder / "queries.jsonl")
    )
    return Set(name, agents, questions)


def translated_questions(language: str) -> list[Question]:
    """Twenty questions of MetaTool in `zh`, `es`, `de` or `ja`, or their originals in `en`."""
    originals = public_set("metatool").questions
    chosen = [(row, originals[row["metatool_query"]]) for row in rows("languages.queries.jsonl")]
    return [Question(row.get(language, original.text), original.relevant) for row, original in chosen]


@cache
def real_servers() -> tuple[Registration, ...]:
    """MCP servers as people registered them, without examples and questions."""
    rows = ({**row, "description": row["description"] or row["name"]} for row in servers())
    return tuple(registration("servers", row) for row in rows)


def family_of(name: str) -> str:
    return next(family for family, names in FAMILIES.items() if name in names)


def questions_without_agent() -> list[str]:
    """Questions that no agent of `clinc150` answers."""
    return [row["query"] for row in read_json_lines(shared_path("data/retrieval/clinc150/queries_none.jsonl"))]


@cache
def haystack() -> tuple[Registration, ...]:
    """Both sets and the real servers together."""
    return (*public_set("metatool").agents, *public_set("sealtools").agents, *real_servers())


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

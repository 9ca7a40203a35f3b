#!/usr/bin/env python3
"""Parse the outline of tags (search/text/data/taxonomy.txt) into the table beside it that a start loads.

scripts/taxonomy.py           writes the table; a test fails when it says something else than the outline
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from waypost.model.names import fold_tag
from waypost.search.text.taxonomy import Concept, spellings, standard_outline

TABLE = Path(__file__).resolve().parent.parent / "src" / "waypost" / "search" / "text" / "data" / "taxonomy.jsonl"
INDENT = 2
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})?\Z")


class BrokenOutline(Exception):
    """Names the line."""


def parse_outline(outline: str) -> list[Concept]:
    """A repeated label gains names and relations. Raises BrokenOutline."""
    concepts: dict[str, Concept] = {}
    unders: list[tuple[str, str, int]] = []
    parents: list[str] = []
    for number, line in enumerate(outline.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            unders += parse_line(line, number, parents, concepts)
    for label, over, number in unders:
        if over not in concepts:
            raise BrokenOutline(f"line {number}: {over!r} has no line of its own")
        relate(concepts, label, over)
    return [*concepts.values()]


def parse_line(line: str, number: int, parents: list[str], concepts: dict[str, Concept]) -> list[tuple[str, str, int]]:
    """Parse one line; return its `under` relations, whose labels may come later."""
    depth, odd = divmod(len(line) - len(line.lstrip(" ")), INDENT)
    if odd or depth > len(parents) or line.startswith("\t"):
        raise BrokenOutline(f"line {number}: indent by two spaces")
    head, *parts = line.strip().split("|")
    written, _, synonyms = head.partition("=")
    label = fold_tag(written.strip().removeprefix("~"))
    if not label:
        raise BrokenOutline(f"line {number}: it has no label")
    concept = concepts.setdefault(label, Concept({}, {}))
    add_names(concept, written)
    add_names(concept, synonyms)
    del parents[depth:]
    if parents:
        relate(concepts, label, parents[-1])
    parents.append(label)
    return [(label, over, number) for part in parts for over in parse_part(part, concept, number)]


def parse_part(part: str, concept: Concept, number: int) -> list[str]:
    kind, colon, values = part.partition(":")
    if kind.strip() == "under" and colon:
        return [fold_tag(value) for value in values.split(",") if value.strip()]
    if not colon or not LANGUAGE.match(kind.strip()):
        raise BrokenOutline(f"line {number}: {part.strip()[:40]!r} is neither a language (`es: viajes`) nor `under`")
    add_names(concept, values)
    return []


def add_names(concept: Concept, names: str) -> None:
    """A name that begins with ~ is too common to name the tag in a text."""
    for name in filter(None, map(str.strip, names.split(","))):
        folded = fold_tag(name.removeprefix("~"))
        concept.names.setdefault(folded)
        for key in spellings(folded):
            concept.keys.setdefault(key, folded)
            if not name.startswith("~"):
                concept.spoken.setdefault(key)


def relate(concepts: dict[str, Concept], label: str, over: str) -> None:
    if label != over:
        concepts[label].broader.setdefault(over)
        concepts[over].narrower.setdefault(label)


def encode_table(concepts: list[Concept]) -> bytes:
    """JSON lines, one concept each."""
    return msgspec.json.Encoder().encode_lines(concepts)


if __name__ == "__main__":
    TABLE.write_bytes(encode_table(parse_outline(standard_outline())))

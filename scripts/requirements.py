#!/usr/bin/env python3
"""The requirements as data: read them, mark them, and render the matrix of the README.

    scripts/requirements.py matrix            write the matrix into README.md, between its markers, and the rules of
                                              `waypost conformance` into src/waypost/conformance/rules.json
    scripts/requirements.py matrix --check    exit with 1 if one of them is out of date
    scripts/requirements.py mark done AF-5 AF-6
    scripts/requirements.py open [WORD]       list planned requirements, of one capability or of all

Reads tests/conformance/<spec>/requirements.toml and the README. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFORMANCE = ROOT / "tests" / "conformance"
README = ROOT / "README.md"
RULES = ROOT / "src" / "waypost" / "conformance" / "rules.json"
BEGIN = "<!-- matrix: begin (scripts/requirements.py matrix) -->"
END = "<!-- matrix: end -->"

LEVELS = ("MUST", "SHOULD", "MAY", "PROPOSED", "INFO")
STATUSES = ("done", "planned", "departed")

# The order of the README, and where each specification is served. The counts come from the data.
SERVED_AT = {
    "profile": "`/profile/v1/…`, dialect `profile`",
    "agentframework": "`/.well-known/agentframework/v1/…`, dialect `af`",
    "rtfs": "`/rtfs`, dialect `rtfs`",
    "announce": "`/agents`, dialect `announce`",
    "adp": "`/.well-known/agent.json`, dialect `adp`",
    "ard": "`/.well-known/ai-catalog.json`, `/ard/…`, dialect `ard`",
    "neighbours": "`/.well-known/agent-card.json`, dialects `a2a`, `mcp`, `oasf`",
    "dns-aid": "`waypost resolve`, `GET /api/v1/resolve`, `waypost dns …`",
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One rule of one specification and its status."""

    spec: str
    id: str
    level: str
    text: str
    status: str
    issue: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Specification:
    stem: str
    title: str
    requirements: tuple[Requirement, ...]


def read_specifications(folder: Path = CONFORMANCE) -> list[Specification]:
    """Every requirements.toml, in the order of the README."""
    found = [_read(path) for path in sorted(folder.glob("*/requirements.toml"))]
    order = list(SERVED_AT)
    return sorted(found, key=lambda spec: (order.index(spec.stem) if spec.stem in order else len(order), spec.stem))


def _read(path: Path) -> Specification:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    stem = path.parent.name
    rows = tuple(Requirement(spec=stem, **row) for row in data["requirement"])
    return Specification(stem, data["title"], rows)


def render_matrix(specifications: list[Specification]) -> str:
    """The block between the markers: one row per specification, and the departures below."""
    lines = ["| specification | where | done | planned | departed |", "|---|---|--:|--:|--:|"]
    departed: list[Requirement] = []
    for spec in specifications:
        count = Counter(row.status for row in spec.requirements)
        where = SERVED_AT.get(spec.stem, "")
        lines.append(f"| {spec.title} | {where} | {count['done']} | {count['planned']} | {count['departed']} |")
        departed += [row for row in spec.requirements if row.status == "departed"]
    if departed:
        names = ", ".join(row.id for row in departed)
        lines += ["", f"Departures (`docs/not-supported.md` gives the reasons): {names}."]
    return "\n".join(lines)


def render_rules(specifications: list[Specification]) -> str:
    """Every requirement without its status: what `waypost conformance` knows of the specifications."""
    rows = [
        {
            "name": spec.stem,
            "title": spec.title,
            "rules": [{"id": row.id, "level": row.level, "text": row.text} for row in spec.requirements],
        }
        for spec in specifications
    ]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def with_matrix(readme: str, matrix: str) -> str:
    """The README with the block replaced. Raises SystemExit if it has no markers."""
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"README.md has no block between {BEGIN!r} and {END!r}.")
    return f"{head}{BEGIN}\n{matrix}\n{END}{tail}"


def mark(status: str, ids: list[str], folder: Path = CONFORMANCE) -> list[str]:
    """Write a status into the data; return the unknown ids."""
    unknown = set(ids)
    for path in folder.glob("*/requirements.toml"):
        text = path.read_text(encoding="utf-8")
        for requirement_id in ids:
            pattern = rf'(id = "{re.escape(requirement_id)}"\n(?:(?!\[\[).*\n)*?status = )"\w+"'
            text, hits = re.subn(pattern, rf'\1"{status}"', text)
            if hits:
                unknown.discard(requirement_id)
        path.write_text(text, encoding="utf-8")
    return sorted(unknown)


def _run_matrix(check: bool) -> int:
    readme = README.read_text(encoding="utf-8")
    specifications = read_specifications()
    expected, rules = with_matrix(readme, render_matrix(specifications)), render_rules(specifications)
    if check:
        is_current = expected == readme and RULES.read_text(encoding="utf-8") == rules
        if not is_current:
            print("README.md or conformance/rules.json is out of date: run scripts/requirements.py matrix.")
        return int(not is_current)
    README.write_text(expected, encoding="utf-8")
    RULES.write_text(rules, encoding="utf-8")
    return 0


def _run_mark(status: str, ids: list[str]) -> int:
    unknown = mark(status, ids)
    if unknown:
        print(f"Unknown requirements: {', '.join(unknown)}.")
    print("Then: scripts/requirements.py matrix, and scripts/reference.py.")
    return int(bool(unknown))


def _run_open(word: str | None) -> int:
    for spec in read_specifications():
        for row in spec.requirements:
            if row.status == "planned" and word in (None, row.issue):
                print(f"{row.id:<10} {row.level:<9} {row.issue:<11} {row.text}")
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="The requirements as data.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("matrix").add_argument("--check", action="store_true")
    marking = commands.add_parser("mark")
    marking.add_argument("status", choices=STATUSES)
    marking.add_argument("ids", nargs="+")
    commands.add_parser("open").add_argument("word", nargs="?")
    given = parser.parse_args(arguments)
    if given.command == "matrix":
        return _run_matrix(given.check)
    if given.command == "mark":
        return _run_mark(given.status, given.ids)
    return _run_open(given.word)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

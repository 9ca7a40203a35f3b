#!/usr/bin/env python3
"""The outline of tags (search/text/data/taxonomy.txt) as it is read, in the table beside it that a start loads.

scripts/taxonomy.py           writes the table; a test fails when it says something else than the outline
"""

from __future__ import annotations

from pathlib import Path

from waypost.search.text.taxonomy import parse_taxonomy, standard_outline

TABLE = Path(__file__).resolve().parent.parent / "src" / "waypost" / "search" / "text" / "data" / "taxonomy.jsonl"


if __name__ == "__main__":
    TABLE.write_bytes(parse_taxonomy(standard_outline()).table())

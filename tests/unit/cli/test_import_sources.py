"""How `waypost import` reads many documents."""

from __future__ import annotations

import io
from pathlib import Path

from waypost import limits
from waypost.cli.commands.agents.bulk import read_sources, read_stdin
from waypost.errors import TooLarge

LINE = b'{"id":"x","padding":"%s"}' % (b"x" * 200_000)
LINES = [LINE] * (limits.BATCH_BYTES // len(LINE) + 10)


def test_json_lines_have_any_length(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_bytes(b"\n".join(LINES))
    found = list(read_sources([str(path)]))
    assert [document.content for document in found] == LINES
    assert found[-1].origin == f"{path}:{len(LINES)}"


def test_an_export_in_a_pipe_has_any_length() -> None:
    found = list(read_stdin(io.BytesIO(b"\n".join(LINES) + b"\n")))
    assert [document.content for document in found] == LINES
    assert {document.error for document in found} == {None}


def test_another_document_in_a_pipe_is_bounded() -> None:
    (document,) = read_stdin(io.BytesIO(b"[" + b",\n".join(LINES) + b"]"))
    assert isinstance(document.error, TooLarge)

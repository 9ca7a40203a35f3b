"""Documents in files and folders."""

from __future__ import annotations

import json
from pathlib import Path

from waypost import limits
from waypost.cli.commands.agents.bulk import ImportDocument, read_sources


def read(folder: Path, name: str, content: bytes) -> list[ImportDocument]:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return list(read_sources([str(folder / name)]))


def test_a_single_document_keeps_its_bytes(tmp_path: Path) -> None:
    content = b'{ "id": "a",\n "name": "A" }\n'
    (piece,) = read(tmp_path, "a.json", content)
    assert piece.content == content
    assert piece.origin.endswith("a.json")


def test_lines_are_documents_with_their_line_numbers(tmp_path: Path) -> None:
    pieces = read(tmp_path, "a.jsonl", b'{"id":"a"}\n\n{"id":"b"}\nbroken\n')
    assert [piece.origin.rsplit(":", 1)[1] for piece in pieces] == ["1", "3", "4"]
    assert pieces[2].content == b"broken"  # the service reports the error and its path


def test_lines_are_recognised_without_the_suffix(tmp_path: Path) -> None:
    assert len(read(tmp_path, "a.json", b'{"id":"a"}\n{"id":"b"}\n')) == 2


def test_an_array_and_a_catalog_are_taken_apart(tmp_path: Path) -> None:
    assert len(read(tmp_path, "a.json", b'[{"id":"a"},{"id":"b"}]')) == 2
    catalog = {"specVersion": "1.0", "host": {"displayName": "A"}, "entries": [{"identifier": "urn:air:a.example:x"}]}
    (piece,) = read(tmp_path, "ai-catalog.json", json.dumps(catalog).encode())
    assert json.loads(piece.content) == catalog["entries"][0]
    assert piece.origin.endswith("ai-catalog.json[0]")


def test_a_document_with_a_member_called_agents_stays_whole(tmp_path: Path) -> None:
    (piece,) = read(tmp_path, "a.json", b'{"id":"a","name":"A","agents":["b"]}')
    assert json.loads(piece.content)["id"] == "a"


def test_an_s_expression_goes_as_it_is_and_alone(tmp_path: Path) -> None:
    content = b'; a comment\n(agent-profile :id "a")\n'
    (piece,) = read(tmp_path, "a.rtfs", content)
    assert piece.content == content
    assert not piece.goes_in_batch


def test_a_folder_is_read_in_order_with_its_folders(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", "deep/c.json", "ignored.txt"):
        read(tmp_path, name, b'{"id":"x"}')
    pieces = list(read_sources([str(tmp_path)]))
    assert [Path(piece.origin).name for piece in pieces] == ["a.json", "b.json", "c.json"]


def test_a_broken_or_too_large_document_fails_alone(tmp_path: Path) -> None:
    (broken,) = read(tmp_path, "a.json", b"{")
    assert broken.error is not None
    assert "Not JSON" in broken.error.message
    (large,) = read(tmp_path, "b.json", b'"' + b"x" * limits.DOCUMENT_BYTES + b'"')
    assert large.error is not None


def test_a_catalog_of_an_unknown_version_is_refused_whole(tmp_path: Path) -> None:
    (refused,) = read(tmp_path, "a.json", b'{"specVersion": "2.0", "entries": [{"identifier": "urn:air:a.example:x"}]}')
    assert refused.error is not None
    assert refused.error.path == "$.specVersion"


def test_nothing_through_a_pipe_is_nothing_to_import_and_an_empty_document_is_none(tmp_path: Path) -> None:
    assert read(tmp_path, "nothing", b"\n") == []
    (piece,) = read(tmp_path, "a.json", b"")
    assert piece.error is not None

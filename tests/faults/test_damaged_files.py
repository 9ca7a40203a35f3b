"""Damaged files of a data folder (F17, E14, E16): the right document or a clear error, never a wrong document and never a 500.

Bits are flipped, sectors swapped, pages zeroed and files truncated, after a clean stop and after a crash. `waypost check` must
name the file whenever the service refuses to start or to return a document.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.server import clean_environment
from support.service import NOW, Bench, profile, service
from waypost.app import Application, build
from waypost.app.integrity import IntegrityReport, check_data_folder
from waypost.cli.main import main
from waypost.client.identity import write_key
from waypost.errors import WaypostError
from waypost.net.clock import ManualClock
from waypost.settings import Settings
from waypost.trust.keys.private_key import new_private_key

AGENTS = 60
QUICK, ALL = 18, 100
SECTOR, PAGE = 512, 4096
KINDS = ("flip", "swap", "zero", "cut")


@dataclass(frozen=True)
class Folders:
    """The same agents after a clean stop and after a crash, and the documents to expect."""

    clean: Path
    crashed: Path
    documents: dict[str, bytes]
    matches: frozenset[str]


def _id(number: int) -> str:
    return f"urn:agent:{number}"


async def _make(folder: Path) -> Folders:
    async with service(folder / "live", store="sqlite") as bench:
        admin = bench.admin()
        for number in range(AGENTS):
            text = f"Translates invoices, number {number}. " + "It reads tables and letters. " * (number % 30)
            made = await admin.post(
                "/api/v1/agents", json=profile(_id(number), description=text, name=f"Agent {number}")
            )
            assert made.status_code == 201, made.text
        documents = {_id(n): await _document(bench, _id(n)) for n in range(AGENTS)}
        matches = await _search(bench)
        await bench.registry.leader._indexer.compact(bench.registry.changes.revision)
        shutil.copytree(folder / "live", folder / "crashed")
    return Folders(folder / "live", folder / "crashed", documents, matches)


async def _document(bench: Bench, agent_id: str) -> bytes:
    answer = await bench.admin().get(f"/profile/v1/agents/{agent_id}")
    assert answer.status_code == 200, answer.text
    return answer.content


async def _search(bench: Bench) -> frozenset[str]:
    answer = await bench.admin().post("/profile/v1/discover", json={"query": "translate an invoice", "limit": 100})
    assert answer.status_code == 200, answer.text
    return frozenset(each["id"] for each in answer.json()["candidates"])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return asyncio.run(_make(tmp_path_factory.mktemp("damage")))


def _files(folder: Path) -> list[str]:
    names = ["waypost.sqlite3", "waypost.sqlite3", "waypost.sqlite3-wal", "waypost.sqlite3-wal", "meeting.db"]
    names += ["admin.token", "keys/token.pem", "keys/identity.pem", "keys/cursor.key", "index/index.json"]
    names += [f"index/{path.name}" for path in sorted((folder / "index").glob("*.rows"))]
    return [name for name in names if (folder / name).exists() and (folder / name).stat().st_size]


def _damage(path: Path, kind: str, choice: random.Random) -> None:
    content = bytearray(path.read_bytes())
    size = len(content)
    if kind == "flip":
        content[choice.randrange(size)] ^= 1 << choice.randrange(8)
    elif kind == "cut":
        del content[choice.randrange(size) :]
    elif kind == "zero":
        pages = [
            start for start in range(0, size, PAGE) if any(content[start : start + PAGE])
        ]  # others are zero already
        start = choice.choice(pages)
        content[start : start + PAGE] = bytes(min(PAGE, size - start))
    else:
        width = SECTOR if size > 4 * SECTOR else max(1, size // 4)
        places = [slice(start, start + width) for start in range(0, size - width + 1, width)]
        one = choice.choice(places)
        other = choice.choice(
            [place for place in places if content[place] != content[one]]
        )  # equal ones change nothing
        content[one], content[other] = content[other], content[one]
    path.write_bytes(content)


async def _try(folder: Path, expected: Folders, name: str, kind: str) -> str:
    """What became of the damage: `refused`, `error`, `missing` or `harmless`."""
    where = f"{kind} of {name}"
    report = check_data_folder(folder)
    for problem in report.problems:
        assert problem.hint, where
    application, refused = await _start(folder)
    if application is None:
        assert refused is not None
        assert refused.hint, f"{where}: {refused.message}"
        _named(report, name, where)
        return "refused"
    bench = Bench(application, ManualClock(NOW))
    try:
        return await _read_all(bench, expected, report, name, where)
    finally:
        await bench.close()


async def _start(folder: Path) -> tuple[Application | None, WaypostError | None]:
    application: Application | None = None
    try:
        application = build(Settings(data=folder, store="sqlite", embedder="none"), clock=ManualClock(NOW))
        await application.start()
    except WaypostError as error:
        if application is not None:
            await application.stop()
        return None, error
    return application, None


async def _read_all(bench: Bench, expected: Folders, report: IntegrityReport, name: str, where: str) -> str:
    outcome = "harmless"
    for agent_id, document in expected.documents.items():
        answer = await bench.admin().get(f"/profile/v1/agents/{agent_id}")
        if answer.status_code == 200:
            assert answer.content == document, f"{where}: a wrong document"
        elif answer.status_code == 404:
            assert name.endswith("-wal"), f"{where}: {agent_id} is lost"  # the end of a log cannot be told from a crash
            outcome = "missing"
        else:
            assert answer.status_code == 503, f"{where}: {answer.status_code} {answer.text}"
            assert "waypost check" in answer.json()["hint"], answer.text
            outcome = "error"
    found = await bench.admin().post("/profile/v1/discover", json={"query": "translate an invoice", "limit": 100})
    if found.status_code == 200:
        ids = {each["id"] for each in found.json()["candidates"]}
        assert ids == expected.matches if outcome == "harmless" else ids <= expected.matches, where
    else:
        assert found.status_code == 503, f"{where}: {found.text}"
        outcome = "error"
    if outcome == "error":
        _named(report, name, where)
    return outcome


def _named(report: IntegrityReport, name: str, where: str) -> None:
    files = {problem.file.removesuffix("-wal") for problem in report.problems}
    assert name.removesuffix("-wal") in files, f"{where}: the check names {files}"


async def _run(folders: Folders, tmp_path: Path, count: int, seed: int) -> dict[str, int]:
    choice, outcomes = random.Random(seed), dict.fromkeys(("refused", "error", "missing", "harmless"), 0)
    for number in range(count):
        source = (folders.clean, folders.crashed)[number % 2]
        name, kind = choice.choice(_files(source)), KINDS[number // 2 % len(KINDS)]
        folder = tmp_path / str(number)
        shutil.copytree(source, folder)
        _damage(folder / name, kind, choice)
        outcomes[await _try(folder, folders, name, kind)] += 1
        shutil.rmtree(folder)
    return outcomes


async def test_a_damaged_file_gives_the_right_document_or_an_error(folders: Folders, tmp_path: Path) -> None:
    outcomes = await _run(folders, tmp_path, QUICK, seed=1)
    assert outcomes["refused"] + outcomes["error"] > 0, outcomes


@pytest.mark.long
async def test_a_hundred_damaged_files(folders: Folders, tmp_path: Path) -> None:
    outcomes = await _run(folders, tmp_path, ALL, seed=2)
    assert outcomes["refused"] > ALL / 5, outcomes


@pytest.mark.parametrize("kind", KINDS)
async def test_damaged_index_files_are_rebuilt_and_named(folders: Folders, tmp_path: Path, kind: str) -> None:
    for number, name in enumerate(each for each in _files(folders.clean) if each.startswith("index/")):
        folder = tmp_path / str(number)
        shutil.copytree(folders.clean, folder)
        _damage(folder / name, kind, random.Random(number))
        report = check_data_folder(folder)
        assert [problem.file for problem in report.problems] == [name]
        assert "Nothing is lost" in report.problems[0].hint
        assert await _try(folder, folders, name, kind) == "harmless"
        assert check_data_folder(folder).ok, "the index was not saved again"


def test_zeroed_pages_are_named_by_their_table_and_end_the_start(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "zeroed"
    shutil.copytree(folders.clean, folder)
    path = folder / "waypost.sqlite3"
    content = bytearray(path.read_bytes())
    with sqlite3.connect(path) as connection:
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'entries'").fetchall()
    content[(root - 1) * PAGE : root * PAGE] = bytes(PAGE)
    path.write_bytes(content)
    assert main(["check", "--data", str(folder)]) == 1
    shown = capsys.readouterr().out
    assert "waypost.sqlite3, table entries" in shown
    assert "waypost restore" in shown
    serve = [sys.executable, "-m", "waypost", "serve", "--port", "0", "--data", str(folder)]
    refused = subprocess.run(serve, capture_output=True, text=True, timeout=120, env=clean_environment(), check=False)
    assert refused.returncode == 78
    assert "waypost.sqlite3" in refused.stderr
    assert "waypost check" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    "name",
    [
        "admin.token",
        "keys/token.pem",
        "keys/identity.pem",
        "keys/cursor.key",
        "keys/own.pem",
        "keys/hosted/a.example.pem",
    ],
)
def test_the_check_sees_a_flipped_bit_in_a_secret(folders: Folders, tmp_path: Path, name: str) -> None:
    """Any text is a valid token and any 32 bytes are a valid key, so each file has something to compare them with."""
    folder = tmp_path / "data"
    shutil.copytree(folders.clean, folder)
    write_key(folder / "keys" / "own.pem", new_private_key("ed25519", bytes(range(32))))
    shutil.copy(folder / "keys" / "own.pem", _parent(folder / "keys" / "hosted" / "a.example.pem"))
    assert check_data_folder(folder).ok
    intact = (folder / name).read_bytes()
    choice = random.Random(3)
    for _ in range(40):
        content = bytearray(intact)
        content[choice.randrange(len(content.rstrip()))] ^= 1 << choice.randrange(7)
        (folder / name).write_bytes(content)
        (problem,) = check_data_folder(folder).problems
        assert problem.file == name, content
        assert problem.hint


def _parent(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    return path


def test_the_check_sees_another_secret_than_the_one_that_the_service_used_last(
    folders: Folders, tmp_path: Path
) -> None:
    """Files of an earlier release have no checksum, and an operator may choose the token."""
    folder = tmp_path / "data"
    shutil.copytree(folders.clean, folder)
    (folder / "admin.token").write_text(f"wp_{'x' * 43}\n")
    bare = new_private_key("ed25519", bytes(range(32))).pem()
    (folder / "keys" / "identity.pem").write_bytes(bare)
    report = check_data_folder(folder)
    assert {problem.file for problem in report.problems} == {"admin.token", "keys/identity.pem"}
    assert all("used last" in problem.message for problem in report.problems)
    application, refused = asyncio.run(_start_and_stop(folder))
    assert (application, refused) == (True, None)
    assert check_data_folder(folder).ok  # they were replaced on purpose


async def _start_and_stop(folder: Path) -> tuple[bool, WaypostError | None]:
    application, refused = await _start(folder)
    if application is not None:
        await application.stop()
    return application is not None, refused


def test_damage_in_the_schema_is_named(folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SQLite quotes the damaged text in its message, which is no valid text then."""
    for number, name in enumerate(("waypost.sqlite3", "meeting.db")):
        folder = tmp_path / str(number)
        shutil.copytree(folders.clean, folder)
        content = bytearray((folder / name).read_bytes())
        content[content.index(b"CREATE TABLE") + 7] ^= 0x80
        (folder / name).write_bytes(content)
        assert main(["check", "--data", str(folder)]) == 1
        assert f"{name}, whole file" in capsys.readouterr().out
        application, refused = asyncio.run(_start_and_stop(folder))
        assert not application
        assert refused is not None
        assert "waypost check" in (refused.hint or "")

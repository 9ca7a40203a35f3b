"""Backups: consistent while the service writes, verified before anything is restored, and readable by their owner alone."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import os
import sqlite3
import tarfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.kill_clients import CLIENTS, PLAIN, Client, document, run_clients
from support.server import running_server
from support.service import profile, service
from support.small_disk import can_mount, small_disk
from waypost.app.backup import make_backup, restore_backup
from waypost.app.integrity import check_data_folder
from waypost.cli.main import main
from waypost.errors import ConfigurationError, DamagedStore, InvalidDocument, StorageFull
from waypost.settings import DATA_ENTRIES, DATABASES
from waypost.stores.sqlite.integrity import summarize

Member = tuple[tarfile.TarInfo, bytes]


async def _fill(data: Path) -> None:
    async with service(data, store="sqlite") as bench:
        admin = bench.admin()
        for number in range(20):
            made = await admin.post(
                "/api/v1/agents", json=profile(f"urn:agent:{number}", description=f"Agent {number}.")
            )
            assert made.status_code == 201, made.text


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data folder and its backup."""
    folder = tmp_path_factory.mktemp("backup")
    asyncio.run(_fill(folder / "data"))
    make_backup(folder / "data", folder / "file")
    return folder / "data", folder / "file"


# --- Whole ----------------------------------------------------------------------------------------


def _state_at(data: Path, revision: int) -> dict[str, str]:
    """The etags of the agents at a revision, from the change log of the service that went on."""
    connection = sqlite3.connect(data / DATABASES[0])
    state: dict[str, str] = {}
    for (event,) in connection.execute("SELECT event FROM events WHERE revision <= ? ORDER BY revision", (revision,)):
        value = json.loads(event)
        if value["type"] in ("withdrawn", "expired"):
            state.pop(value["id"], None)
        else:
            state[value["id"]] = value["etag"]
    connection.close()
    return state


def _etags(data: Path) -> dict[str, str]:
    connection = sqlite3.connect(data / DATABASES[0])
    rows = connection.execute("SELECT registration FROM registrations").fetchall()
    connection.close()
    return {value["record"]["id"]: value["etag"] for value in (json.loads(row) for (row,) in rows)}


def _wait_for_writes(clients: list[Client]) -> None:
    before, deadline = sum(client.answers for client in clients), time.monotonic() + 120
    while sum(client.answers for client in clients) < before + CLIENTS:
        assert time.monotonic() < deadline, "the clients have stopped"
        threading.Event().wait(0.01)


def test_a_backup_under_load_is_one_state_and_is_restored_elsewhere(tmp_path: Path) -> None:
    clients, answered = [Client(number) for number in range(CLIENTS)], threading.Event()
    manifests = []
    with running_server() as server:
        threads = run_clients(clients, server.url, server.headers, answered)
        assert answered.wait(120)
        for number in range(3):
            manifests.append(make_backup(server.data, tmp_path / f"{number}.backup"))
            _wait_for_writes(clients)
        busy = sum(client.answers for client in clients)
        for client in clients:
            client.complaints.append("stop")
        for thread in threads:
            thread.join(120)
        for number, manifest in enumerate(manifests):
            restored = tmp_path / f"restored-{number}"
            restore_backup(tmp_path / f"{number}.backup", restored)
            assert check_data_folder(restored).ok
            assert summarize(restored / DATABASES[0]) == manifest.summary
            assert _etags(restored) == _state_at(server.data, manifest.revision)
        token = server.admin_token
    assert busy > 0
    assert manifests[0].revision < manifests[-1].revision, "nothing was written meanwhile"
    with running_server(data=tmp_path / "restored-2") as other:
        assert other.admin_token == token
        with httpx2.Client(base_url=other.url, headers=other.headers, timeout=60, verify=PLAIN) as http:
            stats = http.get("/api/v1/stats").json()
            assert (stats["agents"], stats["revision"]) == (manifests[2].agents, manifests[2].revision)
            for agent in http.get("/api/v1/agents", params={"limit": 200}).json()["agents"]:
                step = int(agent["version"].rpartition(".")[2])
                assert http.get(f"/profile/v1/agents/{agent['id']}").content == document(agent["id"], step)


def test_the_commands_back_up_restore_and_check(
    backup: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, _ = backup
    assert main(["backup", str(tmp_path / "file"), "--data", str(data), "-o", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["agents"], made["format"]) == (20, 1)
    assert main(["restore", str(tmp_path / "file"), "--data", str(tmp_path / "new"), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == made["digest"]
    assert main(["check", "--data", str(tmp_path / "new"), "-o", "json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert (checked["ok"], checked["digest"], checked["revision"]) == (True, made["digest"], made["revision"])
    assert main(["restore", str(tmp_path / "file"), "--data", str(tmp_path / "new")]) == 78
    assert "is not empty" in capsys.readouterr().err


def test_everything_is_private_whatever_the_umask(backup: tuple[Path, Path], tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_backup(backup[0], tmp_path / "file")
        restore_backup(tmp_path / "file", tmp_path / "new" / "folder")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    for path in (tmp_path / "new").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_old_backup_stays_when_the_store_is_damaged(backup: tuple[Path, Path], tmp_path: Path) -> None:
    _, file = backup
    copy = tmp_path / "data"
    restore_backup(file, copy)
    content = (copy / DATABASES[0]).read_bytes()
    assert b"Agent 7." in content
    (copy / DATABASES[0]).write_bytes(content.replace(b"Agent 7.", b"Agent 8."))
    (tmp_path / "old").write_bytes(b"the last good one")
    with pytest.raises(DamagedStore, match="No backup was made") as refused:
        make_backup(copy, tmp_path / "old")
    assert "waypost check" in (refused.value.hint or "")
    assert (tmp_path / "old").read_bytes() == b"the last good one"


@pytest.mark.parametrize("command", [["backup", "file"], ["restore", "file"], ["check"]])
def test_a_store_in_memory_has_nothing_to_back_up(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYPOST_STORE", "memory")
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--data", str(tmp_path / "data")]) == 78
    assert "'memory' keeps nothing" in capsys.readouterr().err


def test_every_entry_of_a_used_data_folder_is_known(backup: tuple[Path, Path]) -> None:
    """A file that is not in the tables of `settings.locations` would be missing from backups."""
    assert {path.name for path in backup[0].iterdir()} <= set(DATA_ENTRIES)


@pytest.mark.skipif(not can_mount() and "CI" not in os.environ, reason="a file system can only be mounted by root")
def test_a_full_disk_is_named_and_leaves_nothing_behind(backup: tuple[Path, Path], tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 1_000_000)
        with pytest.raises(StorageFull, match="is full; nothing was written"):
            make_backup(backup[0], disk / "file")
        with pytest.raises(StorageFull, match="is full; nothing was written"):
            restore_backup(backup[1], disk / "data")
        ballast.unlink()
        assert [path.name for path in disk.rglob("*")] in ([], ["data"])
        restore_backup(backup[1], disk / "data")


# --- Forged and damaged archives ------------------------------------------------------------------


def _members(file: Path) -> list[Member]:
    with tarfile.open(file) as archive:
        return [(info, (archive.extractfile(info) or io.BytesIO()).read()) for info in archive]


def _write(file: Path, members: list[Member]) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for info, content in members:
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return file


def _with_manifest(members: list[Member], change: Callable[[dict[str, Any]], None]) -> list[Member]:
    manifest = json.loads(members[0][1])
    change(manifest)
    return [(members[0][0], json.dumps(manifest).encode()), *members[1:]]


def _with_member(members: list[Member], name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> list[Member]:
    """The archive with one more member, which the manifest names."""
    content = b"evil"
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    entry = {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return [*_with_manifest(members, lambda manifest: manifest["members"].append(entry)), (info, content)]


BAD_NAMES = [
    "../evil",
    "/etc/evil",
    "keys/../../evil",
    "keys/./evil",
    "evil",
    "index/index.json",
    "waypost.lock",
    "waypost.sqlite3/evil",
    "keys/.hidden",
    "keys//evil",
    "keys\\..\\evil",
    "",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_no_member_is_written_outside_or_unknown(backup: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    forged = _write(tmp_path / "forged", _with_member(_members(backup[1]), name))
    with pytest.raises(InvalidDocument, match="unknown member"):
        restore_backup(forged, tmp_path / "a" / "data")
    assert not (tmp_path / "a").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["forged"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_only_regular_files_are_restored(backup: tuple[Path, Path], tmp_path: Path, kind: bytes) -> None:
    forged = _write(tmp_path / "forged", _with_member(_members(backup[1]), "keys/evil.pem", kind, "/etc/passwd"))
    with pytest.raises(InvalidDocument, match="was expected"):
        restore_backup(forged, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_newer_format_names_what_to_do(backup: tuple[Path, Path], tmp_path: Path) -> None:
    newer = _with_manifest(_members(backup[1]), lambda manifest: manifest.update(format=2))
    with pytest.raises(InvalidDocument, match="its format is 2, and this release reads 1") as refused:
        restore_backup(_write(tmp_path / "newer", newer), tmp_path / "data")
    assert "Install the release" in (refused.value.hint or "")


@pytest.mark.parametrize("change", ["more", "fewer", "twice", "no records", "other content", "other agents"])
def test_an_archive_that_is_not_its_manifest_is_refused(backup: tuple[Path, Path], tmp_path: Path, change: str) -> None:
    members = _members(backup[1])
    if change == "more":
        members.append((tarfile.TarInfo("keys/more.pem"), b"more"))
    elif change == "fewer":
        members.pop()
    elif change == "twice":
        members = _with_manifest(members, lambda manifest: manifest["members"].append(manifest["members"][-1]))
        members.append(members[-1])
    elif change == "no records":
        members = _with_manifest(members, lambda manifest: manifest["members"].pop(0))
        members.pop(1)
    elif change == "other content":
        info, content = members[-1]
        members[-1] = (info, content.replace(b"A", b"B"))
    else:
        members = _with_manifest(members, lambda manifest: manifest.update(digest="0" * 64))
    with pytest.raises(InvalidDocument, match="is not a usable backup"):
        restore_backup(_write(tmp_path / "forged", members), tmp_path / "data")
    assert not (tmp_path / "data").exists() or not list((tmp_path / "data").iterdir())


def test_a_damaged_archive_writes_nothing(backup: tuple[Path, Path], tmp_path: Path) -> None:
    """Also damage behind the last member: gzip's checksum stands at the very end, after padding that no member reads."""
    whole = backup[1].read_bytes()
    for offset in (*range(100, len(whole) - 100, len(whole) // 23), *range(len(whole) - 40, len(whole))):
        flipped = bytearray(whole)
        flipped[offset] ^= 0x10
        for damaged in (bytes(flipped), whole[:offset]):
            if _decompresses_to(whole, damaged):
                continue  # a bit that means nothing, such as the distance of a copy among equal bytes
            (tmp_path / "damaged").write_bytes(damaged)
            with pytest.raises(InvalidDocument):
                restore_backup(tmp_path / "damaged", tmp_path / "data")
            assert not (tmp_path / "data").exists()


def _decompresses_to(whole: bytes, damaged: bytes) -> bool:
    try:
        return gzip.decompress(damaged) == gzip.decompress(whole)
    except (OSError, EOFError, zlib.error):
        return False


def test_a_folder_that_is_used_is_left_alone(backup: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine").write_text("mine")
    with pytest.raises(ConfigurationError, match="is not empty"):
        restore_backup(backup[1], tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine"]

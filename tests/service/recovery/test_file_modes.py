"""Nobody but its owner can read a data folder (E11), whatever the umask and whoever made the files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx2
import pytest

from support.kill_clients import PLAIN
from support.server import running_server
from support.service import profile
from waypost.cli.main import main
from waypost.files import find_exposed, restrict_modes
from waypost.settings import DATA_ENTRIES


def _exposed(folder: Path) -> list[str]:
    return [str(path) for path in (folder, *folder.rglob("*")) if path.lstat().st_mode & 0o077]


def test_all_files_of_a_running_service_are_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    (data / "index").mkdir(mode=0o755)
    (data / "keys").mkdir(mode=0o755)
    (data / "admin.token").write_text("wp_" + "x" * 40)
    (data / "admin.token").chmod(0o644)
    before = os.umask(0o000)
    try:
        with running_server("--workers", "2", data=data) as server:
            with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60, verify=PLAIN) as http:
                private = {"Waypost-Visibility": "private"}
                for number in range(400):  # enough for a saved segment
                    http.post("/api/v1/agents", json=profile(f"urn:agent:{number}"), headers=private)
                http.get("/.well-known/agent.json")
            assert _exposed(data) == []
            assert "could read" in server.log.read_text()
            assert "their modes were repaired" in server.log.read_text()
        assert _exposed(data) == []
    finally:
        os.umask(before)
    assert list((data / "index").glob("*.rows"))


def test_the_doctor_names_an_exposed_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "index").mkdir(mode=0o755)
    (tmp_path / "index" / "0123.rows").write_bytes(b"ids")
    (tmp_path / "index" / "0123.rows").chmod(0o640)
    tmp_path.chmod(0o700)
    (tmp_path / "index").chmod(0o755)
    main(["doctor", "--data", str(tmp_path), "--server", "http://127.0.0.1:9", "-o", "json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    (found,) = [finding for finding in findings if finding["layer"] == "files"]
    assert found["severity"] == "warning"
    assert "index and 1 more in the data folder can be read by other users" in found["message"]


def test_other_files_links_and_shared_folders_are_left_alone(tmp_path: Path) -> None:
    """`--data /tmp` by mistake must not change the modes of what others have there."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").write_text("mine")
    (outside / "file").chmod(0o644)
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o1777)
    (folder / "other.txt").write_text("of somebody else")
    (folder / "other.txt").chmod(0o644)
    (folder / "keys").symlink_to(outside)
    (folder / "index").mkdir(mode=0o755)
    changed, failed = restrict_modes(folder, DATA_ENTRIES)
    assert ([path.name for path in changed], failed) == (["index"], [])
    assert (outside / "file").stat().st_mode & 0o777 == 0o644
    assert outside.stat().st_mode & 0o777 == 0o755
    assert (folder / "other.txt").stat().st_mode & 0o777 == 0o644
    assert find_exposed(folder, DATA_ENTRIES) == []

"""`waypost demo` leaves the data folder of a real service alone: it neither reads nor writes a file of it (THREATS E3)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.server import READY_SECONDS, STOP_SECONDS, clean_environment

POISON = "If this is read as a key or a token, it is refused.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The default data folder of a user, with files that a service cannot use."""
    folder = tmp_path / "home" / ".local" / "share" / "waypost"
    (folder / "keys").mkdir(parents=True)
    for name in ("admin.token", "keys/identity.pem", "keys/token.pem", "waypost.db"):
        (folder / name).write_text(POISON)
    return folder


@contextmanager
def demo(environment: dict[str, str], folder: Path, *flags: str) -> Iterator[tuple[str, Path]]:
    """The address of a demo, and the list of the system calls that named a file."""
    calls = folder / "calls"
    traced = ("strace", "-f", "-qq", "-e", "trace=%file", "-o", str(calls)) if shutil.which("strace") else ()
    process = subprocess.Popen(
        [*traced, sys.executable, "-m", "waypost", "demo", "--port", "0", *flags],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=(folder / "stderr").open("w"),
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("waypost ready "), (folder / "stderr").read_text()
        yield line.split()[-1], calls
    finally:
        os.killpg(process.pid, 15)
        process.communicate(timeout=STOP_SECONDS)


@pytest.mark.parametrize("named_by", ["HOME", "XDG_DATA_HOME", "WAYPOST_DATA", "waypost.toml"])
def test_a_demo_touches_nothing_of_the_default_data_folder(folder: Path, tmp_path: Path, named_by: str) -> None:
    environment = clean_environment({"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "temporary")})
    environment.pop("XDG_DATA_HOME", None)
    if named_by == "XDG_DATA_HOME":
        environment |= {"XDG_DATA_HOME": str(folder.parent), "HOME": str(tmp_path)}
    elif named_by == "WAYPOST_DATA":
        environment |= {"WAYPOST_DATA": str(folder), "HOME": str(tmp_path)}
    elif named_by == "waypost.toml":
        (tmp_path / "waypost.toml").write_text(f'data = "{folder}"\n')
    (tmp_path / "temporary").mkdir()
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}
    with demo(environment, tmp_path) as (url, calls):
        assert list((tmp_path / "temporary").glob("waypost-demo-*/keys/identity.pem"))
        found = subprocess.run(
            [sys.executable, "-m", "waypost", "find", "translate an invoice", "--server", url, "-o", "json"],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
            check=False,
        )
        assert found.returncode == 0, found.stderr
        assert "invoice-translator" in found.stdout
        minted = subprocess.run(
            [sys.executable, "-m", "waypost", "token", "mint", "--sub", "x", "--scope", "admin", "--server", url],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
            check=False,
        )
        assert (minted.returncode, minted.stdout) == (77, "")
        assert "without authentication" in minted.stderr
    assert calls.exists(), "strace is not installed"
    assert [line for line in calls.read_text(errors="replace").splitlines() if str(folder) in line] == []
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}
    assert after == before
    assert list((tmp_path / "temporary").glob("waypost-demo-*")) == [], "the throw-away folder is still there"


def test_a_folder_that_the_command_line_names_is_used(tmp_path: Path) -> None:
    environment = clean_environment({"HOME": str(tmp_path)})
    with demo(environment, tmp_path, "--data", str(tmp_path / "named")):
        assert (tmp_path / "named" / "keys" / "identity.pem").exists()
        assert not (tmp_path / "named" / "keys" / "token.pem").exists()

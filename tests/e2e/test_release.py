"""Releases (scripts/build): the same bytes from the same commit, and wheels that install and answer without a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SUPPORTED = ("3.11", "3.12", "3.13")
BUILD_SECONDS = 600  # a bound, not a measure

pytestmark = [pytest.mark.long, pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository")]


def build(folder: Path) -> dict[str, bytes]:
    """The files of a release. Each build has temporary folders with other names."""
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SOURCE_DATE_EPOCH")}
    subprocess.run(
        [str(ROOT / "scripts" / "build"), str(folder / "dist")],
        env={**environment, "PYTHON": sys.executable, "TMPDIR": str(scratch)},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=BUILD_SECONDS,
    )
    return {path.name: path.read_bytes() for path in (folder / "dist").iterdir()}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    build(folder)
    return folder / "dist"


def test_two_builds_of_one_commit_are_equal(release: Path, tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in release.iterdir()}
    second = build(tmp_path / "a-folder-with-another-name")
    assert first.keys() == second.keys()
    assert [name for name, content in first.items() if second[name] != content] == []
    for ending in ("-none-any.whl", ".tar.gz", ".cdx.json", "SHA256SUMS"):
        assert any(name.endswith(ending) for name in first), ending
    if shutil.which("cc") and sys.platform == "linux":
        assert any("manylinux" in name for name in first)


def find_python(version: str) -> str | None:
    """An interpreter on PATH, or one that pyenv has installed."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in (shutil.which(f"python{version}"), *map(str, installed.glob(f"{version}.*/bin/python"))):
        command = [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        if candidate and subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == version:
            return candidate
    return None


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_wheel_without_kernels_answers_a_search_without_a_compiler(
    release: Path, version: str, tmp_path: Path
) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    (wheel,) = release.glob("*-none-any.whl")
    environment = tmp_path / "environment"
    subprocess.run([python, "-m", "venv", str(environment)], check=True, timeout=120)
    bin_ = environment / "bin"
    path = {"PATH": str(bin_), "HOME": str(tmp_path)}  # no compiler
    pip = [str(bin_ / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    locked = ["--require-hashes", "--only-binary", ":all:", "-r", str(ROOT / "requirements" / "runtime.txt")]
    subprocess.run([*pip, *locked], env={**os.environ, **path}, check=True, timeout=600)
    subprocess.run([*pip, "--no-deps", str(wheel)], env=path, check=True, timeout=120)
    port = free_port()
    with subprocess.Popen(
        [str(bin_ / "waypost"), "demo", "--port", str(port)],
        env=path,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as service:
        try:
            assert service.stdout is not None
            assert next(line for line in service.stdout if line.startswith("waypost ready"))
            command = [str(bin_ / "waypost"), "find", "translate an invoice", "-o", "json"]
            settings = {**path, "WAYPOST_SERVER": f"http://127.0.0.1:{port}"}
            found = subprocess.run(command, env=settings, cwd=tmp_path, capture_output=True, check=True, timeout=120)
        finally:
            service.terminate()
            service.wait(60)
    candidates = json.loads(found.stdout)["candidates"]
    assert "invoice" in candidates[0]["id"]


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_checkout_can_be_installed(installer: str, tmp_path: Path) -> None:
    """`pip install .` and `uv tool install .`, as the README says; in a clone, because a build writes into its folder."""
    uv = shutil.which("uv")
    if installer == "uv" and uv is None:
        pytest.skip("uv is not installed")
    checkout, bin_ = tmp_path / "checkout", tmp_path / "environment" / "bin"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True, timeout=120)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"WAYPOST_WITHOUT_KERNELS": "1"}  # compiled in other tests; here it would take minutes
    if installer == "pip":
        subprocess.run([sys.executable, "-m", "venv", str(bin_.parent)], check=True, timeout=120)
        command = [str(bin_ / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "."]
    else:
        environment |= {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(bin_)}
        command = [str(uv), "tool", "install", "--python", sys.executable, "."]
    subprocess.run(command, cwd=checkout, env=environment, check=True, timeout=BUILD_SECONDS)
    version = [str(bin_ / "waypost"), "version"]
    done = subprocess.run(
        version, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("waypost ")

"""Releases (scripts/build): the same bytes from the same commit, and wheels that install and answer without a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.dockerfile import Image, make_root, run_step
from support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SUPPORTED = ("3.11", "3.12", "3.13")
DEBIANS = {"3.13": "trixie"}  # where an interpreter can be had that is not installed here
LOCK = ROOT / "requirements" / "runtime.txt"
LOCKED = ("--require-hashes", "--only-binary", ":all:", "-r")
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


@pytest.fixture(params=SUPPORTED)
def installed(request: pytest.FixtureRequest, release: Path, tmp_path: Path) -> list[str]:
    """The command `waypost` of the wheel without kernels, installed where there is no compiler."""
    (wheel,) = release.glob("*-none-any.whl")
    python = find_python(request.param)
    if python is not None:
        return [install(python, wheel, tmp_path)]
    if request.param in DEBIANS and shutil.which("debootstrap") is not None and os.getuid() == 0:
        return install_in_root(DEBIANS[request.param], wheel, tmp_path)
    pytest.skip(f"Python {request.param} is not installed")


def install(python: str, wheel: Path, folder: Path) -> str:
    environment = folder / "environment"
    subprocess.run([python, "-m", "venv", str(environment)], check=True, timeout=120)
    bin_ = environment / "bin"
    path = {"PATH": str(bin_), "HOME": str(folder)}
    pip = [str(bin_ / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, *LOCKED, str(LOCK)], env={**os.environ, **path}, check=True, timeout=600)
    subprocess.run([*pip, "--no-deps", str(wheel)], env=path, check=True, timeout=120)
    return str(bin_ / "waypost")


def install_in_root(debian: str, wheel: Path, folder: Path) -> list[str]:
    """In the release of Debian that has this Python."""
    image = Image(make_root(folder, debian, "python3", "python3-venv"))
    for path in (wheel, LOCK):
        shutil.copy(path, image.root)
    run_step(image, "python3 -m venv /environment")
    run_step(image, f"/environment/bin/pip install --quiet {' '.join(LOCKED)} /{LOCK.name}")
    run_step(image, f"/environment/bin/pip install --quiet --no-deps /{wheel.name}")
    return [str(shutil.which("chroot")), str(image.root), "/environment/bin/waypost"]


def test_the_wheel_without_kernels_answers_a_search_without_a_compiler(installed: list[str], tmp_path: Path) -> None:
    in_root = len(installed) > 1
    path = {"PATH": str(Path(installed[-1]).parent), "HOME": "/root" if in_root else str(tmp_path)}
    port = free_port()
    with subprocess.Popen(
        [*installed, "demo", "--port", str(port)],
        env=path,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as service:
        try:
            assert service.stdout is not None
            assert next(line for line in service.stdout if line.startswith("waypost ready"))
            command = [*installed, "find", "translate an invoice", "-o", "json"]
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

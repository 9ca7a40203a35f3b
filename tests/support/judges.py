"""Other people's packages in environments of their own, because they conflict with those of the tests."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

INSTALL_SECONDS = 600
A2A_SDK_0_3_VERSION = "0.3.26"
A2A_SDK_0_3 = f"a2a-sdk[http-server]=={A2A_SDK_0_3_VERSION}"


def python_packages(*requirements: str) -> Path:
    """A folder with packages that precede those of the tests when it is in PYTHONPATH. It is made once for each set of
    requirements and kept beside the packages of the tests."""
    digest = hashlib.sha256("\n".join((sys.version, *requirements)).encode()).hexdigest()[:16]
    folder = Path(sys.prefix) / "judges" / digest
    if folder.is_dir():
        return folder
    folder.parent.mkdir(exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--target", str(fresh), *requirements]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if installed.returncode:
        shutil.rmtree(fresh, ignore_errors=True)
        _refuse(f"{', '.join(requirements)} cannot be installed: {installed.stderr[-300:]}")
    _keep(fresh, folder)
    return folder


def npm_packages(*packages: str) -> Path:
    """The folder `node_modules` with packages of npm, made and kept in the same way."""
    digest = hashlib.sha256("\n".join(("npm", *packages)).encode()).hexdigest()[:16]
    folder = Path(sys.prefix) / "judges" / digest
    if folder.is_dir():
        return folder / "node_modules"
    if shutil.which("npm") is None:
        _refuse("npm is not installed")
    folder.parent.mkdir(exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent))
    command = ["npm", "install", "--prefix", str(fresh), "--no-audit", "--no-fund", "--silent", *packages]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if installed.returncode:
        shutil.rmtree(fresh, ignore_errors=True)
        _refuse(f"{', '.join(packages)} cannot be installed: {installed.stderr[-300:]}")
    _keep(fresh, folder)
    return folder / "node_modules"


def run_python(packages: Path, script: Path, *arguments: str) -> str:
    """The output of a script that uses the packages of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _keep(fresh: Path, folder: Path) -> None:
    try:
        fresh.rename(folder)
    except OSError:  # another process of this run made it meanwhile
        shutil.rmtree(fresh, ignore_errors=True)


def _refuse(reason: str) -> None:
    if "CI" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)

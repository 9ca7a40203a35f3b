"""Clients that generators make of `/openapi.json` register and find an agent, and the linter of OpenAPI finds no error."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.judges import npm_packages, python_packages
from support.server import RunningServer, running_server

PROGRAMS = Path(__file__).parent / "generated_clients"
PYTHON_GENERATOR = "openapi-python-client==0.29.1"
TYPESCRIPT = (
    "openapi-typescript@7.13.0",
    "openapi-fetch@0.17.0",
    "@hey-api/openapi-ts@0.99.0",
    "typescript@5.9.3",
    "@stoplight/spectral-cli@6.16.3",
)
SECONDS = 300


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as running:
        yield running


@pytest.fixture(scope="module")
def description(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("openapi") / "openapi.json"
    path.write_bytes(httpx.get(f"{server.url}/openapi.json", headers=server.headers).content)
    return path


@pytest.fixture(scope="module")
def typescript(description: Path) -> Path:
    """A folder with the generated TypeScript and the programs that use it, compiled."""
    folder = description.parent / "typescript"
    shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    modules = npm_packages(*TYPESCRIPT)
    (folder / "node_modules").symlink_to(modules)
    for command in (
        ["openapi-typescript", str(description), "-o", "schema.d.ts"],
        ["openapi-ts", "-i", str(description), "-o", "sdk"],
        ["tsc", "-p", "."],
    ):
        run([str(modules / ".bin" / command[0]), *command[1:]], folder)
    return folder


def run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.judge("openapi-python-client", "0.29.1", "a generated client registers and finds an agent")
def test_a_client_of_openapi_python_client_registers_and_finds(server: RunningServer, description: Path) -> None:
    packages, folder = python_packages(PYTHON_GENERATOR), description.parent
    generator = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--path"]
    run([*generator, str(description), "--output-path", "generated"], folder, PYTHONPATH=str(packages))
    program = [sys.executable, str(PROGRAMS / "openapi_python_client.py"), server.url, server.admin_token]
    told = json.loads(run(program, folder, PYTHONPATH=f"{folder}{os.pathsep}{packages}"))
    assert told["outcome"] == "created"
    assert "by-openapi-python-client" in told["ids"]


@pytest.mark.long
@pytest.mark.judge("openapi-typescript", "7.13.0", "a client with generated types registers and finds an agent")
def test_a_client_with_types_of_openapi_typescript_registers_and_finds(server: RunningServer, typescript: Path) -> None:
    told = json.loads(run(["node", "out/openapi_fetch.js", server.url, server.admin_token], typescript))
    assert told["outcome"] == "created"
    assert "by-openapi-fetch" in told["ids"]


@pytest.mark.long
@pytest.mark.judge("@hey-api/openapi-ts", "0.99.0", "a generated client registers and finds an agent")
def test_a_client_of_hey_api_registers_and_finds(server: RunningServer, typescript: Path) -> None:
    told = json.loads(run(["node", "out/hey_api.js", server.url, server.admin_token], typescript))
    assert told["outcome"] == "created"
    assert "by-hey-api" in told["ids"]


@pytest.mark.long
@pytest.mark.judge("Spectral", "6.16.3", "the description has no error by the rules for OpenAPI")
def test_spectral_finds_no_error(description: Path) -> None:
    rules = description.parent / "spectral.yaml"
    rules.write_text('extends: ["spectral:oas"]\n', encoding="utf-8")
    spectral = npm_packages(*TYPESCRIPT) / ".bin" / "spectral"
    run([str(spectral), "lint", "--fail-severity", "error", "-r", str(rules), str(description)], description.parent)

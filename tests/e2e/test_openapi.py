"""The API description is correct: schemathesis finds no 5xx and no undescribed response."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support.server import RunningServer, running_server
from support.service import profile

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
# No serializer there writes JSON lines (the batch has its own tests), and JSON-RPC refuses with 200 by design. The others ask
# strangers, who do not answer here: that is a 502, and no fault of the service.
PEER = "post_api_v1_peers"  # asks the registry of its example, too
ELSEWHERE = ("/api/v1/agents:batch", "/rtfs", "/api/v1/agents:fetch", "/api/v1/domains/{id}:check")


# A document may be in any dialect: to go through every member of every schema takes nine of ten requests of a run. The
# laws of codecs do that (tests/property); here such documents are made at random.
ANY_DIALECT = ("post_api_v1_agents", "post_api_v1_agents_verify")
PATIENCE_SECONDS = 900  # a bound, not a measure
# What refuses a request that its description forbids. The tool's own list leaves out addresses and heads that are too long.
REFUSALS = ["400", "401", "403", "404", "405", "406", "409", "414", "415", "422", "428", "429", "431", "5xx"]


def run_against(server: RunningServer, folder: Path, *options: str) -> None:
    command = [
        str(Path(sys.executable).with_name("st")), "run", f"{server.url}/openapi.json",
        "--header", f"Authorization: Bearer {server.admin_token}",
        "--suppress-health-check", "all", "--no-color", "--generation-database", "none",
        *(() if "--seed" in options else ("--seed", "2026")), *options,
    ]  # fmt: skip
    settings = folder / "schemathesis.toml"
    settings.write_text(f"[checks.negative_data_rejection]\nexpected-statuses = {REFUSALS}\n")
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, cwd=folder, check=False)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert "unexpected failure" not in server.log.read_text()


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--store", "memory") as running:
        for name in ("a", "b", "c"):
            httpx2.post(
                f"{running.url}/api/v1/agents", json=profile(name), headers=running.headers, timeout=60
            ).raise_for_status()
        yield running


def test_the_api_keeps_to_its_description(server: RunningServer, tmp_path: Path) -> None:
    left_out = [word for path in ELSEWHERE for word in ("--exclude-path", path)]
    left_out += [word for operation in (*ANY_DIALECT, PEER) for word in ("--exclude-operation-id", operation)]
    phases = ("--phases", "coverage,fuzzing", "--max-examples", "15")
    run_against(server, tmp_path, "--checks", ",".join(CHECKS), *phases, *left_out)


def test_the_api_keeps_to_it_for_documents_of_any_dialect(server: RunningServer, tmp_path: Path) -> None:
    chosen = [word for operation in ANY_DIALECT for word in ("--include-operation-id", operation)]
    run_against(server, tmp_path, "--checks", ",".join(CHECKS), "--phases", "fuzzing", "--max-examples", "60", *chosen)


def test_json_rpc_bodies_of_any_shape_never_fail_the_service(server: RunningServer, tmp_path: Path) -> None:
    checks = ("--checks", "not_a_server_error,status_code_conformance")
    phases = ("--phases", "coverage,fuzzing", "--max-examples", "60")
    run_against(server, tmp_path, *checks, *phases, "--include-path", "/rtfs")


@pytest.mark.long
def test_three_minutes_of_other_requests_find_nothing(server: RunningServer, tmp_path: Path) -> None:
    left_out = [word for path in ELSEWHERE for word in ("--exclude-path", path)]
    left_out += ["--exclude-operation-id", PEER]
    seed = str(random.randrange(2**32))  # printed by the tool, for a run with the same requests
    budget = ("--phases", "coverage,fuzzing", "--max-examples", "200", "--max-time", "180", "--seed", seed)
    run_against(server, tmp_path, "--checks", ",".join(CHECKS), *budget, *left_out)

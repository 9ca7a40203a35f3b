"""The API description is true: a run of schemathesis over it finds no 5xx, and no answer that is not described."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx

from support.server import running_server
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
ELSEWHERE = ("/api/v1/agents:batch", "/rtfs", "/api/v1/agents:fetch", "/api/v1/domains/{id}:check")


def test_the_api_keeps_to_its_description(tmp_path: Path) -> None:
    with running_server("--store", "memory") as server:
        for name in ("a", "b", "c"):
            httpx.post(f"{server.url}/api/v1/agents", json=profile(name), headers=server.headers).raise_for_status()
        command = [
            str(Path(sys.executable).with_name("st")), "run", f"{server.url}/openapi.json",
            "--header", f"Authorization: Bearer {server.admin_token}",
            "--checks", ",".join(CHECKS), "--max-examples", "15", "--seed", "2026", "--phases", "coverage,fuzzing",
            "--suppress-health-check", "all", "--no-color", "--generation-database", "none",
        ]  # fmt: skip
        for path in ELSEWHERE:
            command += ["--exclude-path", path]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
        assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
        assert "unexpected failure" not in server.log.read_text()


def test_json_rpc_bodies_of_any_shape_never_fail_the_service(tmp_path: Path) -> None:
    with running_server("--store", "memory") as server:
        command = [
            str(Path(sys.executable).with_name("st")), "run", f"{server.url}/openapi.json",
            "--header", f"Authorization: Bearer {server.admin_token}", "--include-path", "/rtfs",
            "--checks", "not_a_server_error,status_code_conformance", "--max-examples", "60", "--seed", "2026",
            "--phases", "coverage,fuzzing", "--suppress-health-check", "all", "--no-color",
            "--generation-database", "none",
        ]  # fmt: skip
        run = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
        assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
        assert "unexpected failure" not in server.log.read_text()

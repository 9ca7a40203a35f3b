"""Two agents that know only names: resolved by the development name server, verified both ways."""

from __future__ import annotations

import json
import ssl
import subprocess
from pathlib import Path

import httpx2
import pytest

from support import command_process
from support.dns_serve_process import served_zone
from support.server import clean_environment, running_server
from support.service import profile

PATIENCE_SECONDS = 120.0
NAMES = ("alice.example.test", "bob.example.test")


def certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    names = ",".join([*(f"DNS:{name}" for name in NAMES), "IP:127.0.0.1"])
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=test",
    ]
    subprocess.run(
        [*command, "-keyout", str(key), "-out", str(cert), "-addext", f"subjectAltName={names}"],
        check=True,
        capture_output=True,
    )
    return cert, key


@pytest.mark.req("ADP-36", "ADP-40", "ADP-48")
def test_two_agents_found_by_dns_are_peer_verified_by_their_domains_on_both_sides(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    cert, key = certificate(tmp_path)
    with served_zone(data) as (names, _):
        looking = ("--resolver", names.address, "--trust-anchors", str(data / "dns/trust-anchors"))
        looking = (*looking, "--allow-cidrs", "127.0.0.0/8")
        tls = ("--tls-cert", str(cert), "--tls-key", str(key), "--fetch-ca", str(cert))
        with running_server(*looking, *tls, "--log-level", "debug", data=data) as server:
            trust = {"WAYPOST_CA": str(cert), "WAYPOST_FETCH_CA": str(cert)}
            environment = clean_environment({"WAYPOST_DATA": str(data), **trust})

            def run(*words: str, said: str = "") -> str:
                code, out, err = command_process.run(words, tmp_path, environment, said.encode(), PATIENCE_SECONDS)
                assert code == 0, (words, out.decode(), err.decode())
                return out.decode() + err.decode()

            with httpx2.Client(
                base_url=server.url,
                headers=server.headers,
                verify=ssl.create_default_context(cafile=cert),
                timeout=PATIENCE_SECONDS,
            ) as http:
                for name in NAMES:
                    agent = f"urn:agent:{name.partition('.')[0]}"
                    assert http.post("/api/v1/agents", json=profile(agent)).is_success
                    assert http.post(f"/api/v1/agents/{agent}:host", json={"domain": name}).is_success
                    words = ("dns", "publish", name, "--address", "127.0.0.1", "--nameserver", names.address)
                    run(*words, "--server", server.url)
                document = http.get("/.well-known/agent.json", headers={"Host": NAMES[1]}).json()
            bob = ("--as", "agent:bob.example.test", "--key", str(data / "keys/hosted/bob.example.test.pem"))
            told = run("chat", NAMES[0], *bob, *looking, "-o", "jsonl", said="are you there?\n")
            assert "Connected to alice.example.test: peer-verified, key from its domain" in told
            answer = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
            assert answer["from"] == "agent:alice.example.test"
            assert answer["verified"] is True
            assert document["identity"]["publicKey"]["fingerprint"].startswith("ed25519:")

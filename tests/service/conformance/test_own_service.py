"""`waypost conformance` against this service, as a real process: nothing fails, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import httpx2
import pytest

from support.certificates import Authority
from support.server import RunningServer, running_server
from support.shell import Shell
from waypost.conformance import run
from waypost.errors import Unavailable


@pytest.fixture(scope="module")
def demo() -> Iterator[RunningServer]:
    with running_server(command="demo") as server:
        yield server


@pytest.fixture(scope="module")
def service() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


def _failures(report: dict) -> list[tuple[str, str]]:
    return [(row["id"], row["message"]) for row in report["results"] if row["status"] == "failed"]


def _agents(server: RunningServer, headers: dict[str, str]) -> list[str]:
    answer = httpx2.get(f"{server.url}/profile/v1/agents?limit=200", headers=headers)
    return [agent["id"] for agent in answer.raise_for_status().json()["agents"]]


def test_the_demo_passes_read_only(demo: RunningServer, tmp_path: Path) -> None:
    before = _agents(demo, {})
    ran = Shell(tmp_path, demo.environment())("conformance", demo.url, "--anonymous", "-o", "json")
    assert _failures(ran.json) == []
    assert ran.code == 0, ran.err
    assert _agents(demo, {}) == before


def test_the_demo_passes_with_writes_and_keeps_nothing(demo: RunningServer, tmp_path: Path) -> None:
    before = _agents(demo, {})
    ran = Shell(tmp_path, demo.environment())("conformance", demo.url, "--write", "-o", "json")
    assert _failures(ran.json) == []
    assert ran.code == 0, ran.err
    assert ran.json["notes"] == []
    assert _agents(demo, {}) == before


def test_an_empty_service_passes_as_admin_with_writes_and_stays_empty(service: RunningServer, tmp_path: Path) -> None:
    ran = Shell(tmp_path, service.environment())("conformance", service.url, "--write", "-o", "json")
    assert _failures(ran.json) == []
    assert ran.code == 0, ran.err
    assert ran.json["authenticated"]
    assert ran.json["notes"] == []
    assert _agents(service, service.headers) == []
    assert service.admin_token not in ran.out + ran.err
    for row in ran.json["results"]:
        assert row["rule"]
        assert row["level"]
        if row["status"] == "untested":
            assert row["cause"]
            assert row["message"]
        else:
            assert row["exchanges"], row["id"]
            assert all(exchange["request"]["url"].startswith(service.url) for exchange in row["exchanges"])


def test_lines_junit_and_levels(demo: RunningServer, tmp_path: Path) -> None:
    shell = Shell(tmp_path, demo.environment())
    options = ("--anonymous", "--spec", "ard,a2a", "--level", "must", "--junit", "report.xml")
    ran = shell("conformance", demo.url, *options, "-o", "jsonl")
    assert ran.code == 0, ran.err
    assert {row["level"] for row in ran.lines} == {"MUST"}
    assert {row["specification"] for row in ran.lines} == {"ard", "neighbours"}
    root = ElementTree.fromstring((tmp_path / "report.xml").read_bytes())
    assert sum(len(suite) for suite in root) == len(ran.lines)
    assert shell("conformance", demo.url, "--level", "often").code == 64
    assert shell("conformance", demo.url, "--spec", "often").code == 64


def test_a_service_that_all_may_read_passes_without_a_token(tmp_path: Path) -> None:
    document = {
        "id": "https://agents.example.net/id/archivist",
        "name": "Archivist",
        "description": "Finds old documents in an archive.",
        "tags": ["archive", "search"],
        "version": "1.0.0",
        "bindings": [{"protocol": "https", "endpoint": "https://agents.example.net/archivist"}],
    }
    with running_server("--anonymous-read") as server:
        made = httpx2.post(f"{server.url}/api/v1/agents", json=document, headers=server.headers)
        assert made.status_code == 201
        report = run(server.url)
    assert [(row.id, row.message) for row in report.failures] == []
    assert len(report.recognised) == 8
    assert report.result("AF-5").status == report.result("PRO-7").status == report.result("ANN-34").status == "passed"


def test_a_closed_service_passes_without_a_token_as_far_as_it_can_be_judged(
    service: RunningServer, tmp_path: Path
) -> None:
    ran = Shell(tmp_path, service.environment())("conformance", service.url, "--anonymous", "-o", "json")
    assert _failures(ran.json) == []
    assert ran.code == 0, ran.err
    causes = {row["id"]: row.get("cause") for row in ran.json["results"]}
    assert causes["AF-5"] == causes["PRO-26"] == "needs_token"


def test_over_tls_what_needs_it_passes_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.server().files
    with running_server("--tls-cert", certificate, "--tls-key", key) as server:
        report = run(
            server.url, specs=["profile", "announce", "adp"], token=server.admin_token, ca=authority.certificate
        )
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            run(server.url)
    assert [(row.id, row.message) for row in report.failures] == []
    secured = ("PRO-61", "ANN-36", "ANN-60", "ADP-36", "ADP-37", "ADP-52", "ADP-53")
    assert {report.result(requirement).status for requirement in secured} == {"passed"}

"""The report: verdicts of several checks, JUnit XML, and URLs that stay at one origin."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from waypost.conformance.junit import to_junit
from waypost.conformance.prober import ProbeTarget
from waypost.conformance.report import (
    ConformanceReport,
    ProbeExchange,
    ProbeRequest,
    ProbeResponse,
    RequirementResult,
    RunBounds,
    SpecificationSummary,
)

BOUNDS = RunBounds(requests=1, websockets=0, bytes=1, seconds=1.0)
EXCHANGE = ProbeExchange(
    request=ProbeRequest(method="GET", url="http://a.example/x", headers={"Accept": "*/*"}),
    response=ProbeResponse(status=500, headers={"x": "\x1b[31m"}, body="oops \x00 <&>", body_bytes=4),
)


def make_report(*results: RequirementResult, recognised: bool = True) -> ConformanceReport:
    count = {status: sum(row.status == status for row in results) for status in ("passed", "failed", "untested")}
    summary = SpecificationSummary(name="ard", title="ARD", recognised=recognised, found="It answers.", **count)
    return ConformanceReport(
        url="http://a.example",
        started_at="2026-11-18T05:00:00Z",
        write=False,
        authenticated=False,
        specifications=(summary,),
        results=results,
        notes=(),
        bounds=BOUNDS,
        used=BOUNDS,
    )


def make_result(requirement: str, status: str, **more: object) -> RequirementResult:
    members = {"specification": "ard", "level": "MUST", "rule": "A rule & more", "status": status, **more}
    return RequirementResult(id=requirement, **members)  # type: ignore[arg-type]


def test_a_report_is_ok_if_something_was_recognised_and_nothing_failed() -> None:
    passed, failed = make_result("ARD-1", "passed"), make_result("ARD-2", "failed", message="No.")
    skipped = make_result("ARD-3", "untested", cause="not_offered")
    assert make_report(passed, skipped).ok
    assert not make_report(passed, failed).ok
    assert not make_report(skipped, recognised=False).ok
    report = make_report(passed, failed, skipped)
    assert [row.id for row in report.failures] == ["ARD-2"]
    assert (report.count("passed"), report.count("failed"), report.count("untested")) == (1, 1, 1)
    assert report.result("ARD-3").cause == "not_offered"


def test_junit_counts_failures_and_skips_and_holds_no_character_that_xml_forbids() -> None:
    report = make_report(
        make_result("ARD-1", "passed"),
        make_result("ARD-2", "failed", message="It is \x1b wrong.", exchanges=(EXCHANGE,)),
        make_result("ARD-3", "untested", cause="needs_write", message="Later."),
    )
    root = ElementTree.fromstring(to_junit(report))
    suite = root.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    cases = {case.get("name", "").split()[0]: case for case in suite}
    failure = cases["ARD-2"].find("failure")
    assert failure is not None
    assert failure.get("message") == "It is � wrong."
    assert failure.text is not None
    assert "> GET http://a.example/x" in failure.text
    assert "< oops � <&>" in failure.text
    skipped = cases["ARD-3"].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "needs_write: Later."


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("https://a.example", "https://a.example", ""),
        ("HTTPS://A.example:443/x/", "https://a.example", "/x"),
        ("http://[::1]:8440/a", "http://[::1]:8440", "/a"),
        ("localhost:8440", "http://localhost:8440", ""),
        ("127.0.0.1", "http://127.0.0.1", ""),
        ("registry.example.com", "https://registry.example.com", ""),
    ],
)
def test_a_target_is_one_origin_and_a_path(url: str, origin: str, path: str) -> None:
    target = ProbeTarget.parse(url)
    assert (target.origin, target.path) == (origin, path)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://a.example/x?y=1", "/x?y=1"),
        ("/x", "/x"),
        ("x", "/x"),
        ("wss://a.example/chat", "/chat"),
        ("https://a.example:443", "/"),
        ("http://a.example/x", None),
        ("ws://a.example/x", None),
        ("https://b.example/x", None),
        ("https://a.example:8443/x", None),
        ("//b.example/x", None),
        ("https://a.example@b.example/", None),
        ("https://a.example/a b", None),
        ("https://a.example/é", None),
        ("https://[broken", None),
        ("javascript:alert(1)", None),
    ],
)
def test_a_link_is_used_only_at_the_same_origin(url: str, path: str | None) -> None:
    assert ProbeTarget.parse("https://a.example").find_path(url) == path

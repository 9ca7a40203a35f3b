"""The report as JUnit XML, for CI systems: a suite per specification, a case per requirement."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from waypost.conformance.report import ConformanceReport, ProbeExchange, RequirementResult

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: ConformanceReport) -> bytes:
    """JUnit XML of a report.

    Args:
        report: The report of a run. Requirements that were not tested are skipped cases.
    """
    root = ElementTree.Element("testsuites", {"name": _clean(f"waypost conformance {report.url}")})
    for row in report.specifications:
        results = [result for result in report.results if result.specification == row.name]
        counts = {"tests": len(results), "failures": row.failed, "errors": 0, "skipped": row.untested}
        attributes = {name: str(count) for name, count in counts.items()} | {"timestamp": report.started_at.rstrip("Z")}
        suite = ElementTree.SubElement(root, "testsuite", {"name": row.title} | attributes)
        for result in results:
            _add_case(suite, result)
    ElementTree.indent(root)
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _add_case(suite: ElementTree.Element, result: RequirementResult) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": result.specification, "name": _clean(f"{result.id} {result.rule}")}
    )
    if result.status == "failed":
        failure = ElementTree.SubElement(case, "failure", {"message": _clean(result.message), "type": result.level})
        failure.text = _clean("\n\n".join(map(describe_exchange, result.exchanges)))
    elif result.status == "untested":
        ElementTree.SubElement(case, "skipped", {"message": _clean(f"{result.cause}: {result.message}")})


def describe_exchange(exchange: ProbeExchange) -> str:
    """A request and its answer as plain lines."""
    request, response = exchange.request, exchange.response
    lines = [f"> {request.method} {request.url}"]
    lines += [f"> {name}: {value}" for name, value in request.headers.items()]
    lines += [f"> {line}" for line in request.body.splitlines()]
    lines += [f"< {response.status}"] if response.status is not None else []
    lines += [f"< {name}: {value}" for name, value in response.headers.items()]
    lines += [f"< {line}" for line in response.body.splitlines()]
    return "\n".join([*lines, *([f"! {response.error}"] if response.error else [])])


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)

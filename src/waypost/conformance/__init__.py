"""Conformance checks: judge any registry or agent from outside, by the requirements of the specifications.

The checks share no code with the service: a common mistake would not be found.

Example:
    from waypost.conformance import run

    report = run("https://registry.example.com", specs=["ard"])
    print(report.ok, [result.id for result in report.failures])
"""

from __future__ import annotations

from waypost.conformance.junit import to_junit
from waypost.conformance.report import ConformanceReport, RequirementResult, SpecificationSummary
from waypost.conformance.runner import check, run

__all__ = ("ConformanceReport", "RequirementResult", "SpecificationSummary", "check", "run", "to_junit")

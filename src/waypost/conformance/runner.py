"""Runs the checks of all specifications against one URL and collects the outcomes."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import certifi
import httpx2
import msgspec

from waypost import limits
from waypost.conformance import adp, agent_framework, announce, ard, dns_aid, neighbours, profile, rtfs
from waypost.conformance.answer import shorten
from waypost.conformance.prober import ProbeOptions, Prober, ProbeTarget
from waypost.conformance.report import (
    Cause,
    ConformanceReport,
    ProbeExchange,
    RequirementResult,
    RunBounds,
    SpecificationSummary,
    Status,
)
from waypost.conformance.rules import Rule, SpecificationRules, load_rules
from waypost.conformance.suite import MALFORMED, Check, Suite, Untestable, Violation
from waypost.errors import ConfigurationError, InvalidParameter
from waypost.model.times import to_rfc3339

SUITES: tuple[Suite, ...] = (
    agent_framework.suite,
    profile.suite,
    rtfs.suite,
    announce.suite,
    adp.suite,
    dns_aid.suite,
    ard.suite,
    neighbours.suite,
)


class CheckOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found."""

    status: Status
    message: str = ""
    cause: Cause | None = None
    exchanges: tuple[ProbeExchange, ...] = ()


def run(
    url: str,
    *,
    specs: Iterable[str] = (),
    token: str | None = None,
    write: bool = False,
    timeout: float = limits.CONFORMANCE_REQUEST_SECONDS,
    max_seconds: float = limits.CONFORMANCE_TOTAL_SECONDS,
    ca: Path | None = None,
) -> ConformanceReport:
    """Check a registry or an agent from outside. Blocks; inside an event loop use `check`.

    Args:
        url: Its address. Only this host and port are contacted, and redirects are not followed.
        specs: The specifications to check, such as `profile` or `ard`; all by default.
        token: A bearer token, sent to this origin only.
        write: Also run checks that register, renew and withdraw throw-away agents.
        timeout: Seconds for one request.
        max_seconds: Seconds for the whole run.
        ca: A PEM file of certificate authorities, instead of the default ones.

    Raises:
        InvalidParameter: The URL cannot be used, or a specification is unknown.
        Unavailable: Nothing answers at this address.

    Example:
        >>> report = run("http://127.0.0.1:8440")                        # doctest: +SKIP
        >>> report.ok, [result.id for result in report.failures]         # doctest: +SKIP
        (True, [])
    """
    return asyncio.run(
        check(url, specs=specs, token=token, write=write, timeout=timeout, max_seconds=max_seconds, ca=ca)
    )


async def check(
    url: str,
    *,
    specs: Iterable[str] = (),
    token: str | None = None,
    write: bool = False,
    timeout: float = limits.CONFORMANCE_REQUEST_SECONDS,  # noqa: ASYNC109 - of one request, not of this call
    max_seconds: float = limits.CONFORMANCE_TOTAL_SECONDS,
    ca: Path | None = None,
) -> ConformanceReport:
    """The same as `run`, inside an event loop.

    Args:
        url: The address of the registry or agent.
        specs: The specifications to check; all by default.
        token: A bearer token, sent to this origin only.
        write: Also run checks that register, renew and withdraw throw-away agents.
        timeout: Seconds for one request.
        max_seconds: Seconds for the whole run.
        ca: A PEM file of certificate authorities, instead of the default ones.
    """
    target = ProbeTarget.parse(url)
    names = tuple(specs)
    chosen, is_narrowed = choose_suites(names), bool(names)
    seconds = min(max(max_seconds, limits.CONFORMANCE_CLEANUP_SECONDS + 1), limits.CONFORMANCE_TOTAL_SECONDS)
    bounds = RunBounds(
        requests=limits.CONFORMANCE_REQUESTS,
        websockets=limits.CONFORMANCE_SOCKETS,
        bytes=limits.CONFORMANCE_TOTAL_BYTES,
        seconds=seconds,
    )
    options = ProbeOptions(token=token, write=write, request_seconds=min(timeout, seconds), bounds=bounds)
    tls = _tls_context(target, ca)
    started_at = to_rfc3339(time.time())
    async with httpx2.AsyncClient(
        verify=tls, follow_redirects=False, trust_env=False, timeout=options.request_seconds
    ) as client:
        prober = Prober(target, options, client, tls)
        await prober.require_reachable()
        try:
            if write:
                await profile.seed(prober)
            runs = [await _run_suite(suite, prober, is_named=is_narrowed) for suite in chosen]
        finally:
            await prober.clean_up()
    return ConformanceReport(
        url=url,
        started_at=started_at,
        write=write,
        authenticated=token is not None,
        specifications=tuple(summary for summary, _ in runs),
        results=tuple(result for _, results in runs for result in results),
        notes=tuple(prober.notes),
        bounds=bounds,
        used=prober.used(),
    )


def choose_suites(names: Iterable[str]) -> tuple[Suite, ...]:
    """The suites with these names or aliases, in the order of the table; all if no name is given."""
    wanted = {name.lower() for name in names}
    known = {alias: suite for suite in SUITES for alias in (suite.name, *suite.aliases)}
    for name in sorted(wanted - set(known)):
        raise InvalidParameter(
            f"There is no specification {name!r}.",
            path="spec",
            hint=f"Known are {', '.join(suite.name for suite in SUITES)}.",
        )
    return tuple(suite for suite in SUITES if not wanted or any(known[name] is suite for name in wanted))


def _tls_context(target: ProbeTarget, ca: Path | None) -> ssl.SSLContext:
    if target.scheme == "http":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return ssl.create_default_context(cafile=str(ca or certifi.where()))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"The certificates cannot be used: {error.strerror or error}.", path="ca", hint="`ca` names a PEM file."
        ) from None


async def _run_suite(
    suite: Suite, prober: Prober, *, is_named: bool
) -> tuple[SpecificationSummary, tuple[RequirementResult, ...]]:
    specification = load_rules()[suite.name]
    prober.faults_in_a_row = 0
    prober.start_check()
    try:
        found, absent = await suite.recognise(prober), None
    except Untestable as refusal:
        found, absent = refusal.reason, refusal
    except (Violation, *MALFORMED) as fault:  # something is there, and it is wrong: the checks say what
        found, absent = _describe_fault(fault), None
    outcomes: dict[str, list[CheckOutcome]] = {}
    if absent is None or is_named:
        for wants_write in (False, True):
            for row in suite.checks:
                if row.write is wants_write:
                    outcomes.setdefault(row.requirement, []).append(await _run_check(row, prober, absent))
    results = tuple(
        _result(rule, specification, suite, outcomes.get(rule.id, []), absent) for rule in specification.rules
    )
    count = {status: sum(result.status == status for result in results) for status in ("passed", "failed", "untested")}
    summary = SpecificationSummary(
        name=suite.name, title=specification.title, recognised=absent is None, found=found, **count
    )
    return summary, results


async def _run_check(row: Check, prober: Prober, absent: Untestable | None) -> CheckOutcome:
    prober.start_check()
    if row.write and not prober.options.write:
        return CheckOutcome(status="untested", cause="needs_write", message="Run with --write to judge it.")
    if absent is not None and absent.cause != "needs_token":
        return CheckOutcome(status="untested", cause=absent.cause, message=absent.reason)
    if prober.faults_in_a_row >= limits.CONFORMANCE_FAULTS_IN_A_ROW:
        return CheckOutcome(
            status="untested",
            cause="bound",
            message=f"Left out: {limits.CONFORMANCE_FAULTS_IN_A_ROW} requests in a row were not answered.",
        )
    try:
        await row.function(prober)
    except (Violation, *MALFORMED) as fault:
        return CheckOutcome(status="failed", message=_describe_fault(fault), exchanges=prober.exchanges())
    except Untestable as refusal:
        return CheckOutcome(
            status="untested", cause=refusal.cause, message=refusal.reason, exchanges=prober.exchanges()
        )
    return CheckOutcome(status="passed", exchanges=prober.exchanges())


def _describe_fault(fault: Exception) -> str:
    if isinstance(fault, Violation):
        return str(fault)
    return f"The answer has an unexpected form ({type(fault).__name__}: {shorten(str(fault))})."


def _result(
    rule: Rule, specification: SpecificationRules, suite: Suite, outcomes: list[CheckOutcome], absent: Untestable | None
) -> RequirementResult:
    outcome = _combine(outcomes) or CheckOutcome(
        status="untested",
        cause="not_observable" if rule.id in suite.unobservable else "not_offered",
        message=suite.unobservable.get(rule.id) or (absent.reason if absent else ""),
    )
    return RequirementResult(
        id=rule.id,
        specification=specification.name,
        level=rule.level,
        rule=rule.text,
        status=outcome.status,
        message=outcome.message,
        cause=outcome.cause,
        exchanges=outcome.exchanges,
    )


def _combine(outcomes: list[CheckOutcome]) -> CheckOutcome | None:
    """A failure decides, then a pass. Of several reasons, the first."""
    for status in ("failed", "passed", "untested"):
        with suppress(StopIteration):
            return next(outcome for outcome in outcomes if outcome.status == status)
    return None

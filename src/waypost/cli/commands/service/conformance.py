"""`waypost conformance URL`: check a registry or an agent from outside, by the requirements of the specifications."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
import msgspec
from rich.text import Text

from waypost import limits
from waypost.cli.options import example, split_values
from waypost.cli.output import Printer, count_noun, sanitize, truncate
from waypost.cli.session import Session, with_session
from waypost.conformance.junit import to_junit
from waypost.conformance.prober import ProbeTarget
from waypost.conformance.report import ConformanceReport, ProbeExchange, RequirementResult
from waypost.conformance.runner import SUITES, run
from waypost.errors import ConfigurationError
from waypost.settings import load_connection_settings

EXIT_FAILED = 1

_LEVELS = ("MUST", "SHOULD", "MAY", "PROPOSED", "INFO")
_CAUSES = {
    "not_observable": "cannot be seen from outside",
    "not_offered": "not offered here",
    "no_data": "no agent to show it",
    "needs_write": "need --write",
    "needs_token": "need a token, or another one",
    "needs_tls": "need an https address",
    "bound": "left out at a bound of the run",
}


@click.command(
    epilog=example(
        "waypost conformance https://registry.example.com",
        "waypost conformance localhost:8440 --spec profile,ard --all",
        "waypost conformance https://registry.example.com --write --token $TOKEN --junit report.xml",
    )
)
@click.argument("url", metavar="URL")
@click.option(
    "--spec",
    "specs",
    multiple=True,
    metavar="NAME",
    help=f"Only these specifications: {', '.join(suite.name for suite in SUITES)}. Repeatable, or separated by commas.",
)
@click.option(
    "--level",
    "levels",
    multiple=True,
    metavar="LEVEL",
    help=f"Only requirements of these levels: {', '.join(_LEVELS)}. Repeatable, or separated by commas.",
)
@click.option("--write", is_flag=True, help="Also register, renew and withdraw throw-away agents.")
@click.option("--anonymous", is_flag=True, help="Send no token, even if one is configured.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write JUnit XML.")
@click.option("--all", "show_all", is_flag=True, help="Show every requirement, not only those that failed.")
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=21.0, max=limits.CONFORMANCE_TOTAL_SECONDS),
    default=limits.CONFORMANCE_TOTAL_SECONDS,
    show_default=True,
    help="Seconds for the whole run.",
)
@with_session
def conformance(
    session: Session,
    url: str,
    specs: tuple[str, ...],
    levels: tuple[str, ...],
    write: bool,
    anonymous: bool,
    junit: Path | None,
    show_all: bool,
    max_seconds: float,
) -> int:
    """Check a registry or an agent from outside, and say which requirements it meets.

    Only the host and port of URL are contacted, redirects are not followed, and a run ends after 600 requests or 300 seconds
    at the latest. Without --write nothing is changed. Throw-away agents are removed again, also after a failure.

    The exit code is 0 if all tested requirements are met, 1 if one is not or nothing was recognised, 69 if the service cannot
    be reached.
    """
    printer = session.printer()
    wanted = _parse_levels(levels)
    ProbeTarget.parse(url)  # reports a URL that cannot be used as such, not as a setting
    connection = load_connection_settings(
        {"server": url, "token": session.token, "data": session.data, "ca": session.ca}, config=session.config
    )
    report = run(
        url,
        specs=split_values(specs),
        token=None if anonymous else connection.token,
        write=write,
        timeout=session.timeout or limits.CONFORMANCE_REQUEST_SECONDS,
        max_seconds=max_seconds,
        ca=connection.ca,
    )
    report = _of_levels(report, wanted)
    if junit is not None:
        _write_file(junit, to_junit(report))
    if printer.is_human:
        _show(printer, report, show_all)
    else:
        printer.parts(report, report.results)
    return 0 if report.ok else EXIT_FAILED


def _parse_levels(levels: tuple[str, ...]) -> tuple[str, ...]:
    wanted = tuple(level.upper() for level in split_values(levels))
    for level in wanted:
        if level not in _LEVELS:
            raise click.BadParameter(f"{level!r} is none of {', '.join(_LEVELS)}.", param_hint="--level")
    return wanted


def _of_levels(report: ConformanceReport, levels: tuple[str, ...]) -> ConformanceReport:
    """The report without the requirements of other levels."""
    if not levels:
        return report
    results = tuple(result for result in report.results if result.level in levels)
    count = Counter((result.specification, result.status) for result in results)
    rows = tuple(
        msgspec.structs.replace(
            row,
            passed=count[row.name, "passed"],
            failed=count[row.name, "failed"],
            untested=count[row.name, "untested"],
        )
        for row in report.specifications
    )
    return msgspec.structs.replace(report, results=results, specifications=rows)


def _write_file(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.", path="junit") from None


def _show(printer: Printer, report: ConformanceReport, show_all: bool) -> None:
    for row in report.specifications:
        line = Text().append(f"{row.name:<15}", style="bold" if row.recognised else "dim")
        if row.recognised:
            line.append(f"{row.passed:>4} passed", style="green")
            line.append(f"{row.failed:>4} failed", style="red" if row.failed else "")
            line.append(f"{row.untested:>4} not tested  ", style="dim")
        printer.line(line.append(sanitize(row.found), style="dim"))
    for result in report.results:
        if result.status == "failed" or show_all:
            _show_result(printer, result)
    _show_summary(printer, report)


def _show_result(printer: Printer, result: RequirementResult) -> None:
    style = {"passed": "green", "failed": "red", "untested": "dim"}[result.status]
    line = Text().append(f"{result.status:<9}", style=style).append(f"{result.id:<9}", style="bold")
    printer.line(line.append(f"{result.level:<9}", style="dim").append(result.rule))
    if result.message:
        cause = f"{_CAUSES[result.cause]}: " if result.cause is not None else ""
        printer.line(Text(f"         {cause}{truncate(result.message, 300)}", style=style))
    if result.status == "failed" and result.exchanges:
        _show_exchange(printer, result.exchanges[-1])


def _show_exchange(printer: Printer, exchange: ProbeExchange) -> None:
    request, response = exchange.request, exchange.response
    printer.line(Text(f"         > {truncate(f'{request.method} {request.url} {request.body}', 240)}", style="dim"))
    answer = f"{response.status or ''} {response.error or response.body}"
    printer.line(Text(f"         < {truncate(answer, 240)}", style="dim"))


def _show_summary(printer: Printer, report: ConformanceReport) -> None:
    causes = Counter(result.cause for result in report.results if result.cause is not None)
    reasons = ", ".join(f"{count} {_CAUSES[cause]}" for cause, count in causes.most_common())
    printer.line("")
    if not report.recognised:
        printer.line(Text("Nothing was recognised at this address.", style="red"))
    printer.line(
        f"{report.count('passed')} passed, {report.count('failed')} failed, {report.count('untested')} not tested"
        + (f" ({reasons})." if reasons else ".")
    )
    used = report.used
    printer.note(f"{count_noun(used.requests, 'request')}, {used.bytes} bytes, {used.seconds:g} s.")
    for note in report.notes:
        printer.note(note, style="yellow")

"""`waypost doctor`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import msgspec
from rich.text import Text

from waypost import limits
from waypost.app import has_sentence_model
from waypost.app.integrity import check_data_folder
from waypost.cli.options import example
from waypost.cli.output import Printer, sanitize
from waypost.cli.session import Session, with_session
from waypost.errors import ConfigurationError, MissingScope, NotFound, Unauthorized, Unavailable
from waypost.model.times import find_instant
from waypost.registry.doctor import SEVERITIES, Deployment, diagnose
from waypost.responses.service import Diagnosis, DoctorFinding
from waypost.server.api.rest.service import inspect_machine
from waypost.settings import DATABASES, INDEX_FOLDER, Settings

EXIT_FAILED = 1
_MARKS = {"danger": ("✗", "bold red"), "warning": ("!", "yellow"), "info": ("·", "dim"), "ok": ("✓", "green")}


@click.command(epilog=example("waypost doctor", "waypost doctor --all", "waypost doctor -o json | jq .counts"))
@click.option("--all", "everything", is_flag=True, help="Also show the checks that passed.")
@with_session
def doctor(session: Session, *, everything: bool) -> int:
    """Check the security and health of a deployment, and name the setting to change for each finding.

    A running service reports its own state (needs admin). Without one, the settings and the data folder of this machine are
    examined, and its files checked for damage. Exits with 1 if there is a danger (✗) or a warning (!).
    """
    printer = session.printer()
    diagnosis = _remote_diagnosis(session, printer) or _local_diagnosis(session)
    if printer.is_human:
        for line in _lines(diagnosis, everything=everything):
            printer.line(line)
    else:
        printer.parts(diagnosis, diagnosis.findings)
    return EXIT_FAILED if diagnosis.counts["danger"] or diagnosis.counts["warning"] else 0


def _remote_diagnosis(session: Session, printer: Printer) -> Diagnosis | None:
    """The diagnosis of the running service; None if there is none, or the token is not accepted."""
    try:
        with session.client() as client:
            printer.note(f"Asking {client.base_url}.")
            began = time.time()
            diagnosis = client.doctor()
            return _with_skew(diagnosis, began, time.time())
    except (Unavailable, Unauthorized, MissingScope, NotFound, ConfigurationError) as error:
        printer.note(f"{error.message} Examining the settings and files of this machine instead.")
        return None


def _with_skew(diagnosis: Diagnosis, began: float, ended: float) -> Diagnosis:
    """Add a finding when the clock of the service differs from the clock of this machine."""
    at = find_instant(diagnosis.at)
    if at is None or began - limits.DOCTOR_SKEW_SECONDS <= at <= ended + limits.DOCTOR_SKEW_SECONDS:
        return diagnosis
    finding = DoctorFinding(
        layer="clock",
        severity="warning",
        message=f"The clocks of the service and of this machine differ by {abs(at - ended):.0f} s.",
        hint="Synchronise both with NTP: tokens, leases and signatures depend on the clock.",
    )
    return _with_finding(diagnosis, finding)


def _with_finding(diagnosis: Diagnosis, finding: DoctorFinding) -> Diagnosis:
    findings = sorted((*diagnosis.findings, finding), key=lambda each: SEVERITIES.index(each.severity))
    counts = {**diagnosis.counts, finding.severity: diagnosis.counts[finding.severity] + 1}
    return msgspec.structs.replace(diagnosis, findings=tuple(findings), counts=counts)


def _local_diagnosis(session: Session) -> Diagnosis:
    settings = session.settings()
    machine = inspect_machine(settings, has_embedder=has_sentence_model(settings))
    diagnosis = diagnose(Deployment(settings=settings, machine=machine, now=time.time()))
    damage = _find_damage(settings)
    return diagnosis if damage is None else _with_finding(diagnosis, damage)


def _find_damage(settings: Settings) -> DoctorFinding | None:
    """The state of the files of the data folder; None if it has no store yet. A start detects damage itself, so this is for
    a service that does not run."""
    if not settings.is_durable or settings.is_cluster or not (settings.data / DATABASES[0]).is_file():
        return None
    problems = check_data_folder(settings.data).problems
    if not problems:
        return DoctorFinding(layer="integrity", severity="ok", message="No file of the data folder is damaged.")
    files = {each.file: each for each in problems}
    lost = [each for each in files.values() if not each.file.startswith(f"{INDEX_FOLDER}/")]
    first = (lost or list(files.values()))[0]
    damaged = f"{first.file} and {len(files) - 1} more are damaged" if len(files) > 1 else f"{first.file} is damaged"
    return DoctorFinding(
        layer="integrity",
        severity="danger" if lost else "warning",
        message=f"{damaged}: `waypost check` says where.",
        setting="data",
        hint=first.hint,
    )


def _lines(diagnosis: Diagnosis, *, everything: bool) -> Iterator[Text]:
    for finding in diagnosis.findings:
        if finding.severity == "ok" and not everything:
            continue
        mark, style = _MARKS.get(finding.severity, ("?", ""))
        yield Text(f"{mark} ", style=style).append(f"{sanitize(finding.layer)}: {sanitize(finding.message)}", "default")
        setting = f"[{finding.setting}] " if finding.setting else ""
        if finding.hint:
            yield Text(f"    {setting}{sanitize(finding.hint)}", style="dim")
    yield Text(", ".join(f"{diagnosis.counts.get(each, 0)} {each}" for each in SEVERITIES), style="bold")

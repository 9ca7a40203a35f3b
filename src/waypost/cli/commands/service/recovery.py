"""`waypost backup FILE`, `waypost restore FILE`, `waypost check`: on the machine of the service, by its data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from waypost.app.backup import BackupManifest, make_backup, restore_backup
from waypost.app.integrity import IntegrityReport, check_data_folder
from waypost.cli.options import example
from waypost.cli.output import Printer, count_noun, sanitize
from waypost.cli.session import Session, with_session
from waypost.errors import ConfigurationError
from waypost.settings import DATABASES, REPLICA_FOLDER, Settings

EXIT_DAMAGED = 1


@click.command(
    epilog=example("waypost backup waypost.backup", "waypost backup /mnt/backups/$(date +%F).backup -o json")
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@with_session
def backup(session: Session, file: Path) -> None:
    """Write a backup of the data folder to FILE (mode 0600), also while the service runs.

    FILE contains the records, the audit trail, tasks and messages, all private keys and the admin token: store it like a key.
    Every copied database is checked first; an existing FILE is replaced when the new one is complete. There is no backup over
    HTTP: run the command on the machine of the service, as its user.
    """
    printer = session.printer()
    manifest = make_backup(_durable(session.settings()).data, file)
    _show_manifest(printer, manifest, file, "Backed up")
    if printer.is_human:
        printer.note("It contains private keys and the admin token: store it like a key.")


@click.command(epilog=example("waypost restore waypost.backup --data /srv/waypost", "waypost restore waypost.backup"))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@with_session
def restore(session: Session, file: Path) -> None:
    """Restore a backup into the data folder, which must be empty or new.

    Every digest is verified before anything is written. The search index is not part of a backup; the first start makes it.
    """
    data = _durable(session.settings()).data
    printer = session.printer()
    manifest = restore_backup(file, data)
    _show_manifest(printer, manifest, data, "Restored")
    if printer.is_human:
        printer.note(
            f"Start the service with `waypost serve --data {data}`. Stop the old one first: both have the same keys."
        )


@click.command(epilog=example("waypost check", "waypost check --data /srv/waypost -o json | jq .problems"))
@with_session
def check(session: Session) -> int:
    """Check the integrity of every file of the data folder: databases, audit trail, search index, keys, admin token.

    The service may run meanwhile; nothing is changed. Exits with 1 if anything is damaged, and says how to recover.
    """
    printer = session.printer()
    report = check_data_folder(_durable(session.settings()).data)
    if printer.is_human:
        _show_report(printer, report)
    else:
        printer.parts(_report_value(report), report.problems)
    return 0 if report.ok else EXIT_DAMAGED


def _durable(settings: Settings) -> Settings:
    if not settings.is_durable:
        raise ConfigurationError(
            f"The store {settings.store_kind!r} keeps nothing: there is nothing to back up, restore or check.",
            path="store",
            hint="Use the store sqlite, which keeps its records in the data folder.",
        )
    if settings.is_cluster or _is_of_node(settings.data):
        raise ConfigurationError(
            f"The records are in PostgreSQL, not in the data folder {settings.data}, which is that of a node.",
            path="store",
            hint="Use the tools of the database (pg_dump), and keep the cluster key; or `waypost store copy` to a data folder.",
        )
    return settings


def _is_of_node(data: Path) -> bool:
    """Also without the setting `store`, which only the environment of the node may have."""
    return (data / REPLICA_FOLDER).is_dir() and not (data / DATABASES[0]).exists()


def _show_manifest(printer: Printer, manifest: BackupManifest, place: Path, done: str) -> None:
    if not printer.is_human:
        printer.value({"file" if done == "Backed up" else "data": str(place), **msgspec.to_builtins(manifest)})
        return
    size = sum(member.bytes for member in manifest.members)
    printer.line(
        f"{done} {count_noun(manifest.agents, 'agent')} at revision {manifest.revision}, "
        f"{manifest.audit_entries} audit entries, {count_noun(len(manifest.members), 'file')}, {size} bytes: {place}"
    )
    printer.line(f"digest of the agents: {manifest.digest}")


def _report_value(report: IntegrityReport) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(report)
    summary = value.pop("summary") or {}
    return {**value, **summary}


def _show_report(printer: Printer, report: IntegrityReport) -> None:
    for problem in report.problems:
        text = f"{sanitize(problem.file)}, {sanitize(problem.where)}: {sanitize(problem.message)}"
        printer.line(Text("\u2717 ", style="bold red").append(text, "default"))
        printer.line(Text(f"    {problem.hint}", style="dim"))
    if report.summary is not None:
        summary = report.summary
        printer.line(
            f"{count_noun(summary.agents, 'agent')} at revision {summary.revision}, "
            f"{summary.audit_entries} audit entries; "
            f"digest of the agents: {summary.digest}"
        )
    damaged = sum(file.state == "damaged" for file in report.files)
    verdict = (
        f"{damaged} of {len(report.files)} files are damaged"
        if damaged
        else f"{len(report.files)} files checked, all intact"
    )
    printer.line(Text(f"{verdict}: {report.data}", style="bold"))

"""`waypost verify --log`: is the audit trail still the one that was seen before, and are its entries in it?

The last checkpoint of each service is remembered in the data folder, with the key that signed it. A service can forge what
it says today; it cannot make it fit what it signed yesterday.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from rich.text import Text

from waypost import limits
from waypost.cli.output import Printer
from waypost.cli.session import Session
from waypost.cli.text import clean
from waypost.client.audit import LogCheckpoint
from waypost.client.sync.client import SyncClient
from waypost.errors import ConfigurationError, WaypostError
from waypost.trust.checkpoint import Checkpoint, VerifierKey, parse_verifier_key, verify_checkpoint
from waypost.trust.merkle import is_consistent, is_included

EXIT_FAILED = 1
ENTRIES = 20  # the newest ones, whose place in the tree is proved
_FOLDER = "checkpoints"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a service."""

    server: str
    key: str
    note: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    check: str  # signature, consistency, inclusion
    state: str  # passed, failed, not_checked
    reason: str


def verify_log(session: Session, entries: int = ENTRIES) -> int:
    """Check, say what was found, remember the checkpoint when all is well; the exit code."""
    printer = session.printer()
    with session.client() as client:
        path = _path(session.settings().data, client.base_url)
        told = client.audit_checkpoint()
        findings = list(_findings(client, told, _recall(path), entries))
    failed = any(finding.state == "failed" for finding in findings)
    if not failed:
        _remember(path, Seen(server=client.base_url, key=told.key, note=told.note))
    _show(printer, told, findings, failed=failed)
    return EXIT_FAILED if failed else 0


# --- Checks ---------------------------------------------------------------------------------------


def _findings(client: SyncClient, told: LogCheckpoint, seen: Seen | None, entries: int) -> Iterator[Finding]:
    if seen is not None and seen.key != told.key:
        yield Finding(check="signature", state="failed", reason="The service names another key than before.")
        return
    try:
        key = parse_verifier_key(told.key)
        now = verify_checkpoint(told.note, key)
        before = verify_checkpoint(seen.note, key) if seen is not None else None
    except WaypostError as error:
        yield Finding(check="signature", state="failed", reason=error.message)
        return
    if now.origin != key.name or now.size != told.size:
        yield Finding(check="signature", state="failed", reason="What is signed is not what is said beside it.")
        return
    yield _signature(key, seen)
    yield _consistency(client, before, now)
    yield _inclusion(client, now, entries)


def _signature(key: VerifierKey, seen: Seen | None) -> Finding:
    known = "the key that was remembered" if seen is not None else "a key that is remembered from now on"
    return Finding(check="signature", state="passed", reason=f"Signed by {key.name}, {known}.")


def _consistency(client: SyncClient, before: Checkpoint | None, now: Checkpoint) -> Finding:
    if before is None:
        return Finding(
            check="consistency", state="not_checked", reason="This is the first checkpoint that is seen here."
        )
    if now.size < before.size:
        reason = f"The trail had {before.size} entries and has {now.size}: it was cut or replaced."
        return Finding(check="consistency", state="failed", reason=reason)
    proof = client.audit_proof(from_=before.size, to=now.size)
    if not is_consistent(before.size, now.size, proof.hashes, before.root, now.root):
        reason = f"The first {before.size} entries are not what they were: the trail was rewritten."
        return Finding(check="consistency", state="failed", reason=reason)
    reason = f"All {before.size} entries that were seen before are unchanged; {now.size - before.size} are new."
    return Finding(check="consistency", state="passed", reason=reason)


def _inclusion(client: SyncClient, now: Checkpoint, entries: int) -> Finding:
    """The newest entries, as they are shown, are in the tree that was signed."""
    count = min(entries, limits.AUDIT_PAGE_MAX, now.size)
    if not count:
        return Finding(check="inclusion", state="not_checked", reason="No entry was looked at.")
    leaves = client.audit(now.size - count, limit=count).leaves()
    if list(leaves) != list(range(now.size - count + 1, now.size + 1)):
        return Finding(check="inclusion", state="failed", reason=f"Some of the newest {count} entries are not shown.")
    for number, leaf in leaves.items():
        proof = client.audit_proof(entry=number, size=now.size)
        if not is_included(leaf, number - 1, now.size, proof.hashes, now.root):
            reason = f"Entry {number} is not the one that was signed."
            return Finding(check="inclusion", state="failed", reason=reason)
    return Finding(check="inclusion", state="passed", reason=f"The newest {count} entries are in the signed tree.")


# --- What is remembered ---------------------------------------------------------------------------


def _path(data: Path, server: str) -> Path:
    return data / _FOLDER / f"{hashlib.sha256(server.encode()).hexdigest()[:16]}.json"


def _recall(path: Path) -> Seen | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Seen)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error}).",
            path="data",
            hint="It holds the last checkpoint that was seen. Restore it; removing it forgets what was seen.",
        ) from None


def _remember(path: Path, seen: Seen) -> None:
    fresh = path.with_suffix(".new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.write_bytes(msgspec.json.encode(seen) + b"\n")
        os.replace(fresh, path)
    except OSError as error:
        raise ConfigurationError(
            f"The checkpoint cannot be remembered ({error}).", path="data", hint="Choose a folder with --data."
        ) from None


# --- Telling --------------------------------------------------------------------------------------


def _show(printer: Printer, told: LogCheckpoint, findings: list[Finding], *, failed: bool) -> None:
    if not printer.is_human:
        answer: dict[str, Any] = {"origin": told.origin, "size": told.size, "key": told.key, "passed": not failed}
        printer.value({**answer, "checks": [msgspec.to_builtins(finding) for finding in findings]})
        return
    printer.line(f"{clean(told.origin)}: {told.size} entries")
    styles = {"passed": "green", "failed": "bold red", "not_checked": "yellow"}
    for finding in findings:
        printer.line(
            Text(f"{finding.state:<12}{finding.check:<12} {clean(finding.reason)}", style=styles[finding.state])
        )

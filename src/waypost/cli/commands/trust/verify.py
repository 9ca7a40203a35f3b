"""`waypost verify ID|FILE|DOMAIN` and `waypost verify --log`.

--log checks that the audit trail extends the one of the last check, and that its newest entries are included. The data folder
stores the last checkpoint of each service with the key that signed it: a service can forge its present state, but not make it
consistent with what it signed before.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from waypost import limits
from waypost.cli.commands.agents.bulk import SUFFIXES, unreadable_file
from waypost.cli.commands.network.resolve import LookupOptions, exit_code, lookup_options, resolve, show_resolution
from waypost.cli.completion import complete_agent, complete_dialect
from waypost.cli.options import WholeNumber, example
from waypost.cli.output import Printer, sanitize
from waypost.cli.session import Session, use_agent, with_session
from waypost.cli.views import trust_badge, trust_word
from waypost.client.sync.client import SyncClient
from waypost.domains.target import is_domain
from waypost.errors import BadSignature, ConfigurationError, NotFound, Unauthorized, Unavailable, WaypostError
from waypost.files import write_atomic
from waypost.model.times import to_rfc3339
from waypost.model.verdict import CheckResult, Verdict, trust_summary
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document
from waypost.registry.audit_trail import published_leaf
from waypost.registry.verification import check_with_keys
from waypost.responses.trust import LogCheckpoint, LogProof, VerificationResult, VerifiedDocument
from waypost.trust.announce.signed_announcement import parse_announced_key
from waypost.trust.checks.bound_key import BoundKey
from waypost.trust.transparency_log import (
    Checkpoint,
    VerifierKey,
    entry_leaves,
    leaf_hash,
    parse_verifier_key,
    verify_checkpoint,
    verify_consistency,
    verify_inclusion,
)

EXIT_LOG_FAILED = 1

ENTRIES = 20  # the newest ones, whose inclusion is verified

_FOLDER = "checkpoints"


class KnownCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The last checkpoint of a service."""

    server: str
    key: str
    note: str


class LogCheck(msgspec.Struct, frozen=True, kw_only=True):
    check: str  # signature, consistency, inclusion
    state: str  # passed, failed, not_checked
    reason: str


def verify_log(session: Session, entries: int = ENTRIES) -> int:
    """Verify the audit trail, print the findings, store the checkpoint if all passed; return the exit code."""
    with session.client() as client:
        path = _checkpoint_path(session.settings().data, client.base_url)
        checkpoint = client.audit_checkpoint()
        log = VerifiedLog(checkpoint, _load_checkpoint(path), client.audit_proof)
        findings = list(log.check())
        if log.now is not None:
            findings += [_check_inclusion(client, log.now, entries), _check_published(client, log.now)]
        return _finish(session.printer(), path, client.base_url, checkpoint, findings)


def verify_published_log(session: Session) -> int:
    """The same for the published log, as a witness does: without a token."""
    with session.client() as client:
        path = _checkpoint_path(session.settings().data, f"{client.base_url} published")
        checkpoint = client.published_checkpoint()
        findings = list(VerifiedLog(checkpoint, _load_checkpoint(path), client.published_proof).check())
        return _finish(session.printer(), path, client.base_url, checkpoint, findings)


def _finish(printer: Printer, path: Path, server: str, checkpoint: LogCheckpoint, findings: list[LogCheck]) -> int:
    failed = any(finding.state == "failed" for finding in findings)
    if not failed:
        _save_checkpoint(path, KnownCheckpoint(server=server, key=checkpoint.key, note=checkpoint.note))
    _show_log(printer, checkpoint, findings, failed=failed)
    return EXIT_LOG_FAILED if failed else 0


# --- Checks ---------------------------------------------------------------------------------------


class VerifiedLog:
    """A checkpoint of a log, compared with the one of the last time. `now` is set when its signature is good."""

    def __init__(
        self, checkpoint: LogCheckpoint, known: KnownCheckpoint | None, get_proof: Callable[..., LogProof]
    ) -> None:
        self._checkpoint = checkpoint
        self._known = known
        self._get_proof = get_proof
        self.now: Checkpoint | None = None

    def check(self) -> Iterator[LogCheck]:
        checkpoint, known = self._checkpoint, self._known
        try:
            key = parse_verifier_key(checkpoint.key)
            now = verify_checkpoint(checkpoint.note, key)
            before = verify_checkpoint(known.note, parse_verifier_key(known.key)) if known is not None else None
            if known is not None and _is_other_log(parse_verifier_key(known.key), key):
                reason = "The same key signs another log than before: the trail was truncated or replaced."
                yield LogCheck(check="consistency", state="failed", reason=reason)
                return
            if known is not None and known.key != checkpoint.key:
                # A rotation: for a while the old key signs as well.
                verify_checkpoint(checkpoint.note, parse_verifier_key(known.key))
        except BadSignature as error:
            is_other = known is not None and known.key != checkpoint.key
            reason = (
                "The service uses another key than before, which the old one does not confirm."
                if is_other
                else error.message
            )
            yield LogCheck(check="signature", state="failed", reason=reason)
            return
        except WaypostError as error:
            yield LogCheck(check="signature", state="failed", reason=error.message)
            return
        if (
            now.origin != key.name
            or now.size != checkpoint.size
            or (before is not None and before.origin != now.origin)
        ):
            reason = "The signed checkpoint differs from the reported one."
            yield LogCheck(check="signature", state="failed", reason=reason)
            return
        self.now = now
        yield _check_signature(key, known)
        yield _check_consistency(self._get_proof, before, now)


def _is_other_log(before: VerifierKey, now: VerifierKey) -> bool:
    return before.raw == now.raw and before.name != now.name


def _check_signature(key: VerifierKey, known: KnownCheckpoint | None) -> LogCheck:
    origin = "the stored key" if known is not None else "a key that is stored from now on"
    if known is not None and known.key != key.text():
        origin = "a new key, which the stored one confirms"
    return LogCheck(check="signature", state="passed", reason=f"Signed by {key.name}, {origin}.")


def _check_consistency(get_proof: Callable[..., LogProof], before: Checkpoint | None, now: Checkpoint) -> LogCheck:
    if before is None:
        return LogCheck(
            check="consistency", state="not_checked", reason="This is the first checkpoint of this service."
        )
    if now.size < before.size:
        reason = f"The trail had {before.size} entries and has {now.size}: it was truncated or replaced."
        return LogCheck(check="consistency", state="failed", reason=reason)
    proof = get_proof(from_=before.size, to=now.size)
    if not verify_consistency(before.size, now.size, proof.hashes, before.root, now.root):
        reason = f"The first {before.size} entries changed: the trail was rewritten."
        return LogCheck(check="consistency", state="failed", reason=reason)
    reason = f"All {before.size} known entries are unchanged; {now.size - before.size} are new."
    return LogCheck(check="consistency", state="passed", reason=reason)


def _check_inclusion(client: SyncClient, now: Checkpoint, entries: int) -> LogCheck:
    """Check that the newest entries are in the signed tree."""
    count = min(entries, limits.AUDIT_PAGE_MAX, now.size)
    if not count:
        return LogCheck(check="inclusion", state="not_checked", reason="No entry was checked.")
    leaves = entry_leaves(client.audit(now.size - count, limit=count))
    if list(leaves) != list(range(now.size - count + 1, now.size + 1)):
        return LogCheck(check="inclusion", state="failed", reason=f"Some of the newest {count} entries are missing.")
    for number, leaf in leaves.items():
        proof = client.audit_proof(entry=number, size=now.size)
        if not verify_inclusion(leaf, number - 1, now.size, proof.hashes, now.root):
            reason = f"Entry {number} differs from the signed one."
            return LogCheck(check="inclusion", state="failed", reason=reason)
    return LogCheck(check="inclusion", state="passed", reason=f"The newest {count} entries are in the signed tree.")


def _check_published(client: SyncClient, now: Checkpoint) -> LogCheck:
    """Check that the newest leaf of the published log commits to an earlier state of this trail."""
    try:
        published = client.published_checkpoint()
    except NotFound:
        return LogCheck(check="published", state="not_checked", reason="This service publishes no log.")
    opened = client.published_checkpoints(max(0, published.size - 1), limit=1)
    if not opened.leaves or opened.leaves[0].number != published.size:
        return LogCheck(check="published", state="not_checked", reason="Nothing was published yet.")
    leaf = opened.leaves[0]
    committed = Checkpoint(opened.origin, leaf.size, leaf.root)
    hashed = leaf_hash(published_leaf(leaf.at, committed.text().encode(), leaf.nonce))
    proof = client.published_proof(entry=leaf.number, size=published.size)
    if not verify_inclusion(hashed, leaf.number - 1, published.size, proof.hashes, published.root):
        return LogCheck(check="published", state="failed", reason="The published log commits to something else.")
    grown = client.audit_proof(from_=leaf.size, to=now.size) if leaf.size <= now.size else None
    if grown is None or not verify_consistency(leaf.size, now.size, grown.hashes, leaf.root, now.root):
        reason = f"The trail does not extend the one that was published at {leaf.at}."
        return LogCheck(check="published", state="failed", reason=reason)
    reason = f"The trail extends the one that was published at {leaf.at}, with {leaf.size} entries."
    return LogCheck(check="published", state="passed", reason=reason)


# --- Stored checkpoints ---------------------------------------------------------------------------


def _checkpoint_path(data: Path, server: str) -> Path:
    return data / _FOLDER / f"{hashlib.sha256(server.encode()).hexdigest()[:16]}.json"


def _load_checkpoint(path: Path) -> KnownCheckpoint | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=KnownCheckpoint)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error}).",
            path="data",
            hint="It contains the last checkpoint. Restore it; without it, earlier changes are not detected.",
        ) from None


def _save_checkpoint(path: Path, known: KnownCheckpoint) -> None:
    write_atomic(path, msgspec.json.encode(known) + b"\n")


# --- Output of --log ------------------------------------------------------------------------------


def _show_log(printer: Printer, checkpoint: LogCheckpoint, findings: list[LogCheck], *, failed: bool) -> None:
    if not printer.is_human:
        answer: dict[str, Any] = {
            "origin": checkpoint.origin,
            "size": checkpoint.size,
            "key": checkpoint.key,
            "passed": not failed,
        }
        printer.value({**answer, "checks": [msgspec.to_builtins(finding) for finding in findings]})
        return
    printer.line(f"{sanitize(checkpoint.origin)}: {checkpoint.size} entries")
    styles = {"passed": "green", "failed": "bold red", "not_checked": "yellow"}
    for finding in findings:
        printer.line(
            Text(f"{finding.state:<12}{finding.check:<12} {sanitize(finding.reason)}", style=styles[finding.state])
        )


# --- The command ----------------------------------------------------------------------------------

EXIT_FAILED = 1

_MARKS = {
    "passed": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "unknown": ("?", "yellow"),
    "not_checked": ("-", "dim"),
}


@click.command(
    epilog=example(
        "waypost verify agent:alice.example.com",
        "waypost verify alice.example.com",
        "waypost verify agent-card.json --key alice.pem",
        "waypost verify weather-reporter -o json | jq .trust.level",
        "waypost verify --log",
        "waypost verify --log --public --server https://agents.example.net",
    )
)
@click.argument("target", required=False, metavar="ID|FILE|DOMAIN", shell_complete=complete_agent)
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="PEM",
    help="Verify a file with this public key, without a service. Repeatable.",
)
@click.option(
    "--dialect",
    metavar="NAME",
    shell_complete=complete_dialect,
    help="The dialect of a file, if it should not be recognised from the content.",
)
@click.option("--log", is_flag=True, help="Verify that the audit trail of the service was not rewritten.")
@click.option(
    "--public", is_flag=True, help="With --log: verify the published log instead, as a witness does; needs no token."
)
@click.option(
    "--entries",
    type=WholeNumber(min=0),
    default=ENTRIES,
    show_default=True,
    help="With --log: how many of the newest entries to check.",
)
@lookup_options
@with_session
def verify(
    session: Session,
    target: str | None,
    keys: tuple[Path, ...],
    dialect: str | None,
    entries: int,
    lookup: LookupOptions,
    *,
    log: bool,
    public: bool,
) -> int:
    """Verify an agent, a document in a file, or a domain: every check with its evidence.

    A domain is resolved to its agent without a service; with --server, by that service.

    Exits with 1 if a check failed. A valid signature of a key that is not bound to the agent is `?`: it does not prove who the
    agent is.
    """
    if public and not log:
        raise click.UsageError("--public needs --log.")
    if log:
        return verify_published_log(session) if public else verify_log(session, entries)
    if target is None:
        raise click.UsageError("Expected an ID, a FILE, a DOMAIN, or --log.")
    printer = session.printer()
    path = Path(target)
    if path.is_file():
        found = _verify_file(session, printer, path, keys, dialect)
    elif path.suffix in SUFFIXES and ":" not in target:  # a mistyped file name, which would pass as a domain
        try:
            found = _verify_agent(session, target)
        except (NotFound, Unavailable, Unauthorized):
            raise unreadable_file(path, "No such file or directory") from None
    elif keys:
        raise click.UsageError(f"--key is for files, and {target!r} is not a file.")
    elif is_domain(target) and not target.lower().startswith("agent:"):
        return _verify_domain(session, lookup, printer, target)
    else:
        try:
            found = _verify_agent(session, target)
        except (NotFound, Unavailable, Unauthorized):
            if not is_domain(target):
                raise
            return _verify_domain(session, lookup, printer, target)
    _show(printer, found)
    return EXIT_FAILED if found.level == "failed" else 0


def _verify_agent(session: Session, target: str) -> VerificationResult:
    with session.client() as client:
        return use_agent(client, target, client.verify)


def _verify_domain(session: Session, lookup: LookupOptions, printer: Printer, target: str) -> int:
    found = resolve(session, lookup, target, "key")
    show_resolution(printer, found)
    failed = [verdict for verdict in found.verdicts if verdict.state == "failed"]
    for verdict in failed:
        printer.note(f"{verdict.check} failed: {verdict.reason}", "red")
    if not failed and not found.is_resolved:
        printer.note(f"{found.outcome.replace('_', ' ')}: {found.reason}", "red")
    return exit_code(found)


# --- Files ----------------------------------------------------------------------------------------


def _verify_file(
    session: Session, printer: Printer, path: Path, keys: tuple[Path, ...], dialect: str | None
) -> VerificationResult:
    """Verify with the given keys, else by the service, which knows the keys of the agent."""
    if keys:
        return _verify_locally(path, dialect, [_read_key(key) for key in keys])
    try:
        with session.client() as client:
            return client.verify_document(path, dialect)
    except (Unavailable, Unauthorized) as error:
        printer.note(f"No service that knows the keys ({error.message}) Verifying without keys; see --key.")
        return _verify_locally(path, dialect, [])


def _verify_locally(path: Path, dialect: str | None, keys: list[BoundKey]) -> VerificationResult:
    now = time.time()
    document = path.read_bytes()
    name, _, decoded = decode_document(document, dialect, DecodeContext(now=now))
    trust = trust_summary(check_with_keys(name, document, keys, (), now))
    return VerificationResult(
        id=decoded.record.id,
        trust=trust,
        documents=(VerifiedDocument(dialect=name, level=trust.level, checks=trust.checks or ()),),
        checked_at=to_rfc3339(now),
    )


def _read_key(path: Path) -> BoundKey:
    return BoundKey(parse_announced_key(path.read_text("utf-8"), str(path)), f"--key {path.name}", own=True)


# --- Output ---------------------------------------------------------------------------------------


def _show(printer: Printer, found: VerificationResult) -> None:
    if not printer.is_human:
        printer.value(found.document)
        return
    for line in _lines(found):
        printer.line(line)
    if found.shown and found.shown != found.level:
        printer.note(f"Other responses still show {trust_word(found.shown)}: register the document again.")


def _lines(found: VerificationResult) -> Iterator[Text]:
    yield trust_badge(found.level).append(f"  {sanitize(found.id)}", style="not bold default")
    for document in found.documents:
        yield Text(f"  {sanitize(document.dialect)}", style="bold")
        for check in document.checks or (_NO_SIGNATURES,):
            yield from _check_lines(check)


_NO_SIGNATURES = CheckResult(check="signature", state="not_checked", reason="this dialect has no signatures")


def _check_lines(check: Verdict) -> Iterator[Text]:
    mark, style = _MARKS.get(check.state, ("?", ""))
    line = Text(f"    {mark} ", style=style).append(sanitize(check.check), style="default")
    yield line.append(f"  {sanitize(check.reason or check.state.replace('_', ' '))}", style="dim")
    for name, value in check.evidence.items():
        yield Text(f"        {sanitize(name)}: {sanitize(str(value))}", style="dim")

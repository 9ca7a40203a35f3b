"""`waypost keys new|list|trust|revoke|rotate` and `waypost allow add|remove|list`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from waypost import limits
from waypost.app.service_keys import service_keys_of
from waypost.cli.completion import complete_agent
from waypost.cli.options import WholeNumber, example, parse_duration_option
from waypost.cli.output import Printer, sanitize, without_none
from waypost.cli.session import Session, with_session
from waypost.client.identity import make_key, previous_key_path, read_key, read_text, replace_key, write_key
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.responses.trust import TrustStorePage
from waypost.server.hosted_agents.keys import hosted_key_path
from waypost.settings import ADMIN_TOKEN_FILE
from waypost.trust.announce.signed_announcement import parse_announced_key, sign_announcement
from waypost.trust.keys.private_key import PrivateKey
from waypost.trust.keys.public_key import KEY_ID

if TYPE_CHECKING:
    from waypost.client.sync.client import SyncClient


KEY_FILE = "keys/announce.pem"
SERVICE_KEYS = ("token", "identity", "cursor")
_KINDS = {"ed25519": "ed25519", "p256": "p-256", "rsa": "rsa"}


def parse_overlap(text: str) -> int:
    """A duration; unlike others it may be 0."""
    seconds = 0 if text.strip() == "0" else parse_duration_option(text)
    if seconds > limits.KEY_OVERLAP_MAX_SECONDS:
        raise click.BadParameter(f"At most {limits.KEY_OVERLAP_MAX_SECONDS // 86_400}d.")
    return seconds


@click.group()
def keys() -> None:
    """Create your own keys; trust, list and revoke the keys of agents."""


# --- On this machine ------------------------------------------------------------------------------


@keys.command(
    "new",
    epilog=example(
        "waypost keys new",
        "waypost keys new --type p256 --out agent.pem",
        "waypost keys new --domain alice.example.com",
    ),
)
@click.option(
    "--type", "kind", type=click.Choice(list(_KINDS)), default="ed25519", show_default=True, help="The key type."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"The file to write.  [default: DATA/{KEY_FILE}]",
)
@click.option("--domain", metavar="DOMAIN", help="The key of a domain that the service with this data folder hosts.")
@with_session
def new(session: Session, kind: str, out: Path | None, domain: str | None) -> None:
    """Create a private key (file mode 0600) and print its public key. Existing files are not overwritten."""
    if domain is not None and (out is not None or kind != "ed25519"):
        raise click.UsageError("--domain cannot be combined with --out or --type: ADP uses Ed25519 keys only.")
    data = session.settings().data
    path = out or (data / KEY_FILE if domain is None else hosted_key_path(data, domain))
    key = make_key(_KINDS[kind])
    write_key(path, key)
    _show_key(session.printer(), key, path)


@keys.command(
    "rotate",
    epilog=example(
        "waypost keys rotate",
        "waypost keys rotate --key agent.pem --agent agent.json > announcement.json",
        "waypost keys rotate --domain alice.example.com",
        "waypost keys rotate --service token",
        "waypost keys rotate --service token --overlap 0",
    ),
)
@click.option(
    "--key",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"The key to replace.  [default: DATA/{KEY_FILE}]",
)
@click.option(
    "--agent",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="An agent object: print its announcement, signed by both keys.",
)
@click.option("--domain", metavar="DOMAIN", help="The key of a domain that the service with this data folder hosts.")
@click.option(
    "--service",
    type=click.Choice(SERVICE_KEYS),
    help="A key of the service itself: the one that signs its tokens, its documents and checkpoints, or its cursors.",
)
@click.option(
    "--overlap",
    type=parse_overlap,
    metavar="DURATION",
    help="With --service: how long the old key is accepted; 0 for a key that was stolen.  [default: as long as anything "
    "made with it can be valid]",
)
@with_session
def rotate(
    session: Session,
    path: Path | None,
    agent: Path | None,
    domain: str | None,
    service: str | None,
    overlap: int | None,
) -> None:
    """Replace a key of this machine. The old one is stored next to it: it signs the rotation for a week.

    The next announcement has the new public_key, a `signature` of the new key and a `previous_signature` of the old one, both
    over the same agent. Services accept the old key for another 24 hours.

    With --service, a key of the service with this data folder is replaced, or with --server that of a service elsewhere (needs
    admin). A running service uses the new key at once, in every process, and accepts the old one for the overlap.
    """
    if service is not None:
        if path is not None or agent is not None or domain is not None:
            raise click.UsageError("--service cannot be combined with --key, --agent or --domain.")
        _rotate_service_key(session, service, overlap)
        return
    if overlap is not None:
        raise click.UsageError("--overlap needs --service.")
    if domain is not None and (path is not None or agent is not None):
        raise click.UsageError("--domain cannot be combined with --key or --agent.")
    data = session.settings().data
    path = path or (data / KEY_FILE if domain is None else hosted_key_path(data, domain))
    announced = None if agent is None else _read_agent(agent)
    previous = read_key(path)
    key = make_key(previous.public.kind if previous.public.kind in _KINDS.values() else "ed25519")
    backup = replace_key(path, key, previous)
    printer = session.printer()
    if announced is None:
        _show_key(printer, key, path, previous=previous)
    else:
        printer.raw(dump_json(sign_announcement(announced, key, previous, now=time.time())))
    printer.note(f"The old key {previous.public.key_id} is stored in {backup}.")
    if domain is not None:
        printer.note(f"It is not trusted until the zone names it: `waypost dns publish {domain}`.")
    elif announced is None:
        printer.note(
            "Announce this public_key, signed by both keys: `waypost keys rotate --agent FILE` prints such a message."
        )


def _rotate_service_key(session: Session, name: str, overlap: int | None) -> None:
    printer, settings = session.printer(), session.settings()
    if session.connection().named or not (settings.data / ADMIN_TOKEN_FILE).exists():
        with session.client() as client:
            key = client.rotate_service_key(name, overlap_seconds=overlap)
    else:
        key = service_keys_of(settings).rotate(name, time.time(), overlap)
    if not printer.is_human:
        printer.value(without_none(msgspec.to_builtins(key)))
        return
    printer.line(f"rotated  {key.name}  {key.key_id or ''}".rstrip())
    if key.accepted_until is None:
        printer.note("The old key is no longer accepted.")
    else:
        printer.note(f"The old key is accepted until {key.accepted_until}.")
    if name == "identity":
        printer.note("If the DNS names the key of the service, publish the new one: `waypost dns publish`.")


def _read_agent(path: Path) -> JsonObject:
    document = parse_object(read_text(path).encode())
    agent = document.get("agent", document)
    if not isinstance(agent, dict) or "agent_id" not in agent:
        raise InvalidDocument(
            "This is not an agent object.", path="$", hint="It needs agent_id, capabilities and transport."
        )
    return {name: value for name, value in agent.items() if name != "public_key"}


def _show_key(printer: Printer, key: PrivateKey, path: Path, previous: PrivateKey | None = None) -> None:
    if printer.is_human:
        printer.raw(key.public.pem().encode())
        printer.note(f"{key.public.kind} {key.public.key_id}, in {path}")
        return
    value: dict[str, Any] = {
        "key_id": key.public.key_id,
        "kind": key.public.kind,
        "file": str(path),
        "public_key": key.public.pem(),
        "previous_key_id": previous.public.key_id if previous is not None else None,
        "previous_file": str(previous_key_path(path, previous)) if previous is not None else None,
    }
    printer.value(without_none(value))


# --- Of a service ---------------------------------------------------------------------------------


@keys.command("list", epilog=example("waypost keys list", "waypost keys list --revoked -o jsonl"))
@click.option(
    "--agent", "agent_id", metavar="AGENT_ID", shell_complete=complete_agent, help="Only the keys of this agent."
)
@click.option("--revoked", is_flag=True, help="Only revocations, which every reader may list.")
@click.option("-n", "--limit", type=WholeNumber(min=1), help="The maximum number.  [default: all]")
@with_session
def list_keys(session: Session, agent_id: str | None, revoked: bool, limit: int | None) -> None:
    """List the trust store: the keys of agents, and revocations."""
    printer = session.printer()
    with session.client() as client:
        if revoked:
            rows = client.revocations()
            if printer.is_human:
                printer.rows((sanitize(row.what), row.revoked_at, sanitize(row.reason or "")) for row in rows)
                if not rows:
                    printer.note("No revocations.")
            else:
                printer.values(without_none(msgspec.to_builtins(row)) for row in rows)
            return
        store = _read_trust_store(client, agent_id, limit)
    if not printer.is_human:
        keys = [without_none(msgspec.to_builtins(key)) for key in store.keys]
        revocations = [without_none(msgspec.to_builtins(row)) for row in store.revoked]
        printer.parts({"keys": keys, "revoked": revocations}, [*keys, *revocations])
        return
    printer.rows((key.agent_id, key.key_id, key.state, key.until or "", key.via) for key in store.keys)
    printer.rows(("revoked", sanitize(row.what), row.revoked_at, sanitize(row.reason or "")) for row in store.revoked)
    if not store.keys and not store.revoked:
        printer.note("No keys. Trust one with `waypost keys trust AGENT_ID FILE`.")


def _read_trust_store(client: SyncClient, agent_id: str | None, limit: int | None) -> TrustStorePage:
    """All pages, up to `limit` rows."""
    page = client.keys_list(agent_id, limit=limits.PAGE_MAX)
    keys, revoked = list(page.keys), list(page.revoked)
    while page.next_cursor is not None and (limit is None or len(keys) + len(revoked) < limit):
        page = client.keys_list(agent_id, limit=limits.PAGE_MAX, cursor=page.next_cursor)
        keys += page.keys
        revoked += page.revoked
    if limit is None:
        return TrustStorePage(keys=tuple(keys), revoked=tuple(revoked))
    return TrustStorePage(keys=tuple(keys[:limit]), revoked=tuple(revoked[: max(0, limit - len(keys))]))


@keys.command("trust", epilog=example("waypost keys trust 3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d agent.pub.pem"))
@click.argument("agent_id", shell_complete=complete_agent)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@with_session
def trust(session: Session, agent_id: str, file: Path) -> None:
    """Pin the public key (or certificate) in FILE for an agent. Its earlier keys are no longer accepted."""
    printer = session.printer()
    text = read_text(file)
    parse_announced_key(text, str(file))  # before it is sent: a private key must not be
    with session.client() as client:
        key = client.keys_trust(agent_id, text)
    if printer.is_human:
        printer.line(f"{key.outcome:<9}  {key.agent_id}  {key.key_id}")
    else:
        printer.value(without_none(msgspec.to_builtins(key)))


@keys.command(
    "revoke",
    epilog=example(
        "waypost keys revoke 3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d --reason 'host was lost'",
        "waypost keys revoke sha256:a050837d85070582ccf7394b0988847cc312cb88259b894899f6f239cf1791a5",
        "waypost keys revoke serial:1f00a3",
    ),
)
@click.argument("what", metavar="KEY_ID|AGENT_ID|serial:HEX|token:ID")
@click.option("--reason", metavar="TEXT", help="The reason, visible to every reader.")
@with_session
def revoke(session: Session, what: str, reason: str | None) -> None:
    """Revoke a key, an agent, a certificate or a token, immediately and permanently. Its records are withdrawn."""
    printer = session.printer()
    with session.client() as client:
        revocation = client.keys_revoke(**_revocation_target(what), reason=reason)
    if not printer.is_human:
        printer.value(without_none(msgspec.to_builtins(revocation)))
        return
    printer.line(f"{revocation.outcome:<9}  {sanitize(revocation.what)}")
    for agent_id in revocation.withdrawn or ():
        printer.line(f"withdrawn  {sanitize(agent_id)}")


def _revocation_target(what: str) -> dict[str, str]:
    kind, colon, name = what.partition(":")
    if colon and kind in ("serial", "token"):
        return {"serial" if kind == "serial" else "token_id": name}
    if KEY_ID.match(what.lower().removeprefix("key:")):
        return {"key_id": what.lower().removeprefix("key:")}
    return {"agent_id": what}


@click.group()
def allow() -> None:
    """Manage the allow-list of announcers. If it is empty, only an admin may announce."""


@allow.command(
    "add",
    epilog=example(
        "waypost allow add 3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d",
        "waypost allow add key:sha256:a050837d85070582ccf7394b0988847cc312cb88259b894899f6f239cf1791a5",
        "waypost allow add '*'",
    ),
)
@click.argument("rule")
@with_session
def add(session: Session, rule: str) -> None:
    """Add RULE: an agent_id, key:sha256:<hex>, san:<suffix> (mode ca) or *. It takes effect at once."""
    printer = session.printer()
    with session.client() as client:
        added = client.allow_add(rule)
    if printer.is_human:
        printer.line(f"{added.outcome:<9}  {sanitize(added.rule)}")
    else:
        printer.value(without_none(msgspec.to_builtins(added)))


@allow.command("remove", epilog=example("waypost allow remove '*'"))
@click.argument("rule")
@with_session
def remove(session: Session, rule: str) -> None:
    """Remove RULE. Agents announced under it stay until their lease ends."""
    printer = session.printer()
    with session.client() as client:
        client.allow_remove(rule)
    if printer.is_human:
        printer.line(f"removed    {sanitize(rule)}")
    else:
        printer.value({"rule": rule, "outcome": "removed"})


@allow.command("list", epilog=example("waypost allow list -o json"))
@with_session
def list_rules(session: Session) -> None:
    """List the rules."""
    printer = session.printer()
    with session.client() as client:
        rules = client.allow_list()
    if not printer.is_human:
        printer.values(without_none(msgspec.to_builtins(rule)) for rule in rules)
        return
    printer.rows((sanitize(rule.rule), rule.added_at, sanitize(rule.added_by)) for rule in rules)
    if not rules:
        printer.note("No rules: only an admin may announce. Add one with `waypost allow add AGENT_ID`.")

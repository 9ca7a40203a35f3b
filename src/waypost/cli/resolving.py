"""Resolving in the command's own process, without a service: with the resolver, the trust anchors and the ranges that flags,
variables or the settings file name. Where a stranger's DNS leads is not followed into private networks unless they are named.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from waypost.cli.options import texts
from waypost.cli.session import Session
from waypost.domains.organisation import OrganisationReader
from waypost.domains.resolving import DomainResolver, ResolveOptions
from waypost.model.resolution import Depth, OrganisationIndex, Resolution
from waypost.net.clock import SystemClock
from waypost.net.outgoing import Outgoing, OutgoingOptions
from waypost.settings import Settings, load_settings

_TAKEN = ("resolver", "trust_anchors", "legacy_names", "fetch_ca", "trust_ad")


class Looking(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked, and what may be connected to; None is what the settings say."""

    resolver: str | None = None
    trust_anchors: Path | None = None
    allow_cidrs: tuple[str, ...] | None = None
    legacy_names: bool | None = None
    fetch_ca: Path | None = None
    trust_ad: bool | None = None


def looking_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The flags of `Looking`, which arrive as `looking`."""

    @functools.wraps(function)
    def command(*args: Any, **given: Any) -> Any:
        ranges = texts(given.pop("allow_cidrs")) or None
        taken = {name: given.pop(name) for name in _TAKEN}
        return function(*args, looking=Looking(allow_cidrs=ranges, **taken), **given)

    options = (
        click.option("--resolver", metavar="HOST:PORT|URL", help="Who is asked for names, instead of the system's."),
        click.option(
            "--trust-anchors",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Further DS or DNSKEY records that DNSSEC starts from, beside the root's.",
        ),
        click.option(
            "--allow-cidr",
            "--allow-cidrs",
            "allow_cidrs",
            multiple=True,
            metavar="RANGE",
            help="A private range to follow into.",
        ),
        click.option(
            "--fetch-ca",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Further certificate authorities that are trusted; --ca does the same here.",
        ),
        click.option("--trust-ad/--no-trust-ad", default=None, help="Take the resolver's word instead of validating."),
        click.option("--legacy-names/--no-legacy-names", default=None, help="Try the names of the -01 draft too."),
    )
    wrapped: Callable[..., Any] = command
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def resolve(session: Session, looking: Looking, name: str, depth: Depth) -> Resolution:
    """By the service that --server names, else here."""
    if session.server is not None:
        with session.client() as client:
            return client.resolve(name, depth, fresh=True)
    return asyncio.run(make_resolver(session, looking).resolve(name, depth))


def read_organisation(session: Session, looking: Looking, name: str) -> OrganisationIndex:
    """By the service that --server names, else here."""
    if session.server is not None:
        with session.client() as client:
            return client.organisation(name)
    outgoing = make_outgoing(session, looking)
    follow = _settings(session, looking).foreign_index
    return asyncio.run(OrganisationReader(outgoing, outgoing, SystemClock(), follow_signed=follow).read(name)).told


def make_resolver(session: Session, looking: Looking) -> DomainResolver:
    settings = _settings(session, looking)
    outgoing = make_outgoing(session, looking)
    return DomainResolver(outgoing.dns, outgoing, SystemClock(), ResolveOptions(legacy_names=settings.legacy_names))


def _settings(session: Session, looking: Looking) -> Settings:
    flags = {"data": session.data, **msgspec.structs.asdict(looking), "fetch_ca": looking.fetch_ca or session.ca}
    return load_settings(flags, config=session.config)


def make_outgoing(session: Session, looking: Looking) -> Outgoing:
    """The way out of this process."""
    return Outgoing(OutgoingOptions.of(_settings(session, looking)))

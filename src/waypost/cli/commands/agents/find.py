"""`waypost find TEXT` and `waypost facets`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from waypost.cli.completion import complete_facet
from waypost.cli.options import WholeNumber, example, filter_options, split_values, tag_option
from waypost.cli.output import Printer, count_noun, sanitize
from waypost.cli.session import Session, with_session
from waypost.cli.views import show_candidate, show_facets
from waypost.errors import (
    FetchFailed,
    InvalidRequest,
    RateLimited,
    Timeout,
    Unauthorized,
    Unavailable,
    WaypostError,
    error_codes,
)
from waypost.model.query import FACETS, MATCHES, QUERY_FEDERATION
from waypost.model.record import LISTED
from waypost.protocols.rtfs.discover_form import (
    INVALID_RESPONSE,
    QUERY_FAILED,
    RATE_LIMITED,
    TIMEOUT,
    UNAUTHORIZED,
    UNAVAILABLE,
    is_discover_form,
)
from waypost.responses.search import Candidate, SearchResult


@click.command(epilog=example("waypost facets", "waypost facets --by tag --protocol a2a", "waypost facets -o json"))
@click.option(
    "--by", "names", multiple=True, type=click.Choice(FACETS), help="Count by this. Repeatable.  [default: all]"
)
@filter_options
@with_session
def facets(
    session: Session,
    names: tuple[str, ...],
    tags: tuple[str, ...],
    protocol: str | None,
    status: str | None,
    owner: str | None,
) -> None:
    """Count the agents that you may see, by tag, protocol, status and owner."""
    printer = session.printer()
    with session.client() as client:
        overview = client.facets(*names, tags=split_values(tags), protocol=protocol, status=status, owner=owner)
    if not printer.is_human:
        printer.value(overview.document)
        return
    show_facets(printer, overview.facets)
    printer.note(f"{count_noun(overview.total, 'agent')} in total.")
    for warning in overview.warnings:
        printer.note(f"warning: {warning}", style="yellow")


@click.command(
    epilog=example(
        "waypost find translate an invoice",
        'waypost find "onboard a new employee" --tag hr --protocol https --explain',
        'waypost find "summarise a contract" --constraint region=eu --constraint max_latency_ms=500 --min-score 0.3',
        'waypost find "weather in Paris" -o json | jq -r ".candidates[0].id"',
        "waypost find '(discover-agents {:discovery-tags [:weather] :limit 5})'",
    )
)
@click.argument("words", nargs=-1, required=True, metavar="TEXT...")
@tag_option
@click.option(
    "--prefer",
    multiple=True,
    metavar="TAG",
    shell_complete=complete_facet("tag"),
    help="Rank agents with this tag higher. Repeatable.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="TAG",
    shell_complete=complete_facet("tag"),
    help="No agents with this tag. Repeatable.",
)
@click.option(
    "-p",
    "--protocol",
    "protocols",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_facet("protocol"),
    help="Only agents that speak one of these protocols. Repeatable.",
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(LISTED),
    help="Only agents with this status. Repeatable.  [default: all]",
)
@click.option(
    "-c",
    "--constraint",
    "constraints",
    multiple=True,
    metavar="NAME=VALUE",
    help="A hard constraint, e.g. region=eu. Repeatable.",
)
@click.option(
    "--context", multiple=True, metavar="NAME=VALUE", help="Tie-breakers: locale, language, domain. Repeatable."
)
@click.option("--min-score", type=click.FloatRange(0, 1), metavar="SCORE", help="Omit lower scores, 0 to 1.")
@click.option(
    "--min-match", type=click.Choice(MATCHES), help="Omit weaker matches: strong, possible or weak.  [default: weak]"
)
@click.option("--all", "show_all", is_flag=True, help="List weak matches too, if others fit better.")
@click.option(
    "-n", "--limit", type=WholeNumber(1, 100), default=10, show_default=True, help="The maximum number of results."
)
@click.option("--detail", type=click.Choice(("minimal", "summary", "full")), default="summary", show_default=True)
@click.option("--explain", is_flag=True, help="Show the evidence of each result.")
@click.option(
    "--federation",
    type=click.Choice(QUERY_FEDERATION),
    default="none",
    show_default=True,
    help="auto: also ask the registries that the operator allowed. They get the text and the filters, nothing of you.",
)
@click.option("--all-similar", is_flag=True, help="Do not limit near duplicates to two in ten results.")
@click.option(
    "--facets", is_flag=True, help="Also count the agents that pass the filters, by tag, protocol, status and owner."
)
@with_session
def find(session: Session, words: tuple[str, ...], constraints: tuple[str, ...], **options: Any) -> int:
    """Find agents for a task, best first.

    TEXT is the task in words, quoted or not, or an RTFS form (discover-agents {criteria} {options}). A form takes no other
    options and prints its value: a vector of cards, or [:error …].
    """
    printer = session.printer()
    text = " ".join(words)
    if is_discover_form(text):
        return _evaluate_form(session, printer, text)
    with session.client() as client:
        found = client.find(
            text,
            tags=split_values(options["tags"]),
            preferred_tags=split_values(options["prefer"]),
            excluded_tags=split_values(options["exclude"]),
            protocols=split_values(options["protocols"]),
            statuses=options["statuses"],
            constraints=dict(map(_constraint, constraints)),
            limit=options["limit"],
            detail=options["detail"],
            explain=options["explain"],
            min_score=options["min_score"],
            min_match=options["min_match"],
            context=dict(map(_constraint, options["context"])),
            facets=FACETS if options["facets"] else (),
            diversity=not options["all_similar"],
            federation=options["federation"],
        )
    _show_result(printer, found, explain=options["explain"], show_all=options["show_all"])
    if options["facets"] and printer.is_terminal:
        show_facets(printer, found.facets)
    elif options["facets"] and printer.is_human:
        printer.note("Facets are shown on a terminal and in -o json; `waypost facets` prints them as rows.")
    for name in found.unsupported_filters:
        printer.note(f"warning: the filter {name!r} is not supported", style="yellow")
    for warning in found.warnings:
        printer.note(f"warning: {warning}", style="yellow")
    for name, count in found.rejected_constraints.items() if options["explain"] else ():
        printer.note(f"{name} excluded {count_noun(count, 'agent')} that pass the other filters.")
    return 0


# The error of each failure of a form, for its exit code and for -o json.
_FORM_ERRORS: dict[str, type[WaypostError]] = {
    QUERY_FAILED: InvalidRequest,
    UNAUTHORIZED: Unauthorized,
    RATE_LIMITED: RateLimited,
    UNAVAILABLE: Unavailable,
    TIMEOUT: Timeout,
    INVALID_RESPONSE: FetchFailed,
}


def _evaluate_form(session: Session, printer: Printer, text: str) -> int:
    context = click.get_current_context()
    for parameter in find.params:
        is_given = context.get_parameter_source(parameter.name or "") == ParameterSource.COMMANDLINE
        if is_given and parameter.name != "words" and parameter.name not in Session.__struct_fields__:
            raise click.UsageError(f"{parameter.opts[-1]} cannot be combined with a form: write it as a criterion.")
    with session.client() as client:
        value = client.discover_agents(text)
    if printer.is_human:
        printer.raw(value.text.encode())
    if value.failure is None:
        if not printer.is_human:
            printer.values(value.cards)
        for warning in () if printer.is_human else value.warnings:
            printer.note(f"warning: {warning}", style="yellow")
        return 0
    error = _FORM_ERRORS[value.failure.type](value.failure.message)
    if not printer.is_human:
        raise error
    return error_codes(error).exit


_HINTS = {
    "nothing_registered": "No agents are registered. Register one with `waypost register FILE`.",
    "filtered": "Nothing fits. Use fewer --tag, --protocol and --constraint.",
    "no_match": "Nothing fits. Use other words; `waypost facets` shows what is registered.",
    "below_min_score": "Nothing fits well enough. Use a lower --min-score, or other words.",
    "below_min_match": "Nothing fits well enough. Leave out --min-match, or use other words.",
}


def _constraint(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE; the value is JSON if it parses as JSON, else text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{text!r} is not NAME=VALUE.")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value


def _show_result(printer: Printer, found: SearchResult, *, explain: bool, show_all: bool) -> None:
    if printer.output == "json":
        printer.value({**found.document, "candidates": [*map(_candidate_value, found.candidates)]})
    elif printer.output == "jsonl":
        printer.values(map(_candidate_value, found.candidates))
    elif not found.candidates:
        printer.note(_HINTS.get(found.empty.reason if found.empty else "", _HINTS["filtered"]))
    else:
        _show_candidates(printer, found.candidates, explain=explain, show_all=show_all)


def _candidate_value(candidate: Candidate) -> dict[str, Any]:
    """The candidate as the service sent it, with the members that the SDK derives from its bindings."""
    return {**candidate.document, "protocols": list(candidate.protocols), "endpoint": candidate.endpoint}


def _show_candidates(printer: Printer, candidates: Sequence[Candidate], *, explain: bool, show_all: bool) -> None:
    """Weak matches are listed if nothing fits better, or if they are asked for."""
    fitting = [candidate for candidate in candidates if candidate.match != "weak"]
    if not fitting:
        printer.note("Nothing fits well. The nearest agents:" if len(candidates) > 1 else "Nothing fits well:")
    shown = candidates if show_all or not fitting else fitting
    if printer.is_terminal or explain:
        for place, candidate in enumerate(shown, 1):
            show_candidate(printer, place, candidate, explain=explain)
    else:
        printer.rows(map(_cells, shown))
    if hidden := len(candidates) - len(shown):
        printer.note(f"{hidden} weak {'match is' if hidden == 1 else 'matches are'} not shown; --all lists them.")


def _cells(candidate: Candidate) -> tuple[str, ...]:
    match = sanitize(candidate.match or f"{candidate.score or 0.0:.3f}")
    return match, sanitize(candidate.name), sanitize(candidate.id), sanitize(candidate.reason or candidate.description)

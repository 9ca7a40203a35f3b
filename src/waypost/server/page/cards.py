"""An agent in a list: what it is, how far it can be trusted, whether it is alive, where the record came from.

What a card says is a function of the registration, so it is written once and kept, bounded. What a search found out about it
is put beside it each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from waypost import limits
from waypost.model.names import slug
from waypost.model.query import Candidate, Evidence
from waypost.model.record import AgentRecord, protocols_of
from waypost.model.registration import Registration
from waypost.registry.entries import expiry_of
from waypost.registry.lru import Lru
from waypost.server.page.badges import trust_badge
from waypost.server.page.markup import Content, Html, el, join, meter, shown_text
from waypost.server.page.times import moment

_DESCRIPTION = 320
_TAGS = 8
_LINE_ENDS = re.compile(r"[\r\n\t]+")
_COMPONENTS = {
    "words": "words",
    "context": "description",
    "example": "examples",
    "tag": "tags",
    "protocol": "protocol",
    "freshness": "freshness",
    "policy": "trust",
    "preference": "preference",
}
_FLAGS = {
    "suspicious_text": "its text tries to instruct its reader",
    "hidden_text": "it carries text that is not seen",
    "confusable_name": "its name looks like that of a verified agent",
}


def agent_path(agent_id: str) -> str:
    return f"/a/{slug(agent_id)}"


class Cards:
    """`trust_of` tells what was found of an agent's documents."""

    def __init__(self, trust_of: Callable[[Registration], dict[str, Any]]) -> None:
        self._trust_of = trust_of
        self._kept: Lru[str, tuple[tuple[int, str, float], Html]] = Lru(limits.PAGE_CARDS)

    def card(self, registration: Registration) -> Html:
        return el("li", self._body(registration), class_="agent")

    def hit(self, candidate: Candidate, registration: Registration) -> Html:
        return el("li", self._body(registration), _why(candidate), class_="agent hit")

    def _body(self, registration: Registration) -> Html:
        mark = (registration.revision, registration.etag, registration.renewed_at)
        kept = self._kept.get(registration.id)
        if kept is None or kept[0] != mark:
            kept = (mark, self._written(registration))
            self._kept.put(registration.id, kept)
        return kept[1]

    def _written(self, registration: Registration) -> Html:
        record = registration.record
        head = el(
            "div",
            el("h3", el("a", record.name or record.id, href=agent_path(record.id))),
            trust_badge(self._trust_of(registration), source=source_line(registration)),
            liveness(registration),
            class_="head",
        )
        shown = shortened(record.description, _DESCRIPTION)
        return join(
            (
                head,
                el("p", shown, class_="says") if shown else None,
                el("p", _labels(record), class_="labels"),
                el("p", el("code", record.id), el("span", source_line(registration), class_="via"), class_="fine"),
            )
        )


def shortened(text: str, most: int) -> str:
    """In one line, as long as a list has room for."""
    text = _LINE_ENDS.sub(" ", text)
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + "…"


def _labels(record: AgentRecord) -> Content:
    spoken = [el("span", name, class_="protocol") for name in protocols_of(record) if "+" not in name]
    tags = [el("span", tag, class_="tag") for tag in record.tags[:_TAGS]]
    more = len(record.tags) - _TAGS
    return (
        join([join((each, " ")) for each in (*spoken, *tags)]),
        el("span", f"+{more}", class_="soft") if more > 0 else None,
    )


def liveness(registration: Registration) -> Html:
    """Whether it is alive, as far as the registry can know: its own word, how its endpoint answers, and its lease."""
    status, health = registration.status, registration.health
    ends = expiry_of(registration)
    answers: Content = (f" · {health.state} since ", moment(health.since)) if health is not None else None
    lease: Content = (" · lease until ", moment(ends)) if ends is not None else None
    word = f"live {status}" if health is None else f"live {status} {health.state}"
    return el("span", el("span", status, class_="word"), answers, lease, class_=word)


def source_line(registration: Registration) -> Content:
    """Which documents the record is made of, and how the newest came in. Who brought them is told to nobody here."""
    if not registration.sources:
        return "made here"
    newest = registration.sources[0]
    dialects = ", ".join(dict.fromkeys(source.dialect for source in registration.sources))
    return (f"{dialects} by {newest.via}, ", moment(newest.received_at))


# --- Why it was found -----------------------------------------------------------------------------


def _why(candidate: Candidate) -> Html:
    evidence = candidate.evidence
    return el(
        "div",
        el("p", meter(candidate.score, "match"), el("b", f"{candidate.score:.2f}"), class_="score"),
        _bars(evidence) if evidence is not None else None,
        _reasons(evidence) if evidence is not None else None,
        class_="why",
    )


def _bars(evidence: Evidence) -> Html:
    """Each reason by itself, as long as it counts. There are hundreds on a page, so they are written at once."""
    named = [(_COMPONENTS.get(name, name), value) for name, value in evidence.components.items()]
    bars = [f"<dt>{shown_text(name)}</dt><dd>{meter(value, name)}</dd>" for name, value in named]
    return Html(f'<dl class="bars">{"".join(bars)}</dl>')


def _reasons(evidence: Evidence) -> Html:
    return el(
        "details", el("summary", "Why"), el("div", _figures(evidence), _told(evidence), class_="pop"), class_="reasons"
    )


def _figures(evidence: Evidence) -> Html:
    told = ", ".join(f"{_COMPONENTS.get(name, name)} {value:.2f}" for name, value in evidence.components.items())
    return el("p", told, class_="soft")


def _told(evidence: Evidence) -> Content:
    tags = (*evidence.matched_tags, *(f"{tag} (near)" for tag in evidence.expanded_tags))
    return (
        el("p", "Tags: ", [el("span", tag, class_="tag") for tag in tags]) if tags else None,
        [el("blockquote", snippet) for snippet in evidence.snippets],
        [el("blockquote", "Example: ", example.text) for example in evidence.matched_examples[:2]],
        [el("p", "Beware: ", _FLAGS.get(flag, flag), class_="beware") for flag in evidence.flags],
    )

"""Agents as people see them in lists: trust badge and trust ladder, health, provenance, and the reasons of a match.

A card is a function of the registration, so its HTML is cached. What a search adds is rendered each time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from waypost import limits
from waypost.cache import LruCache
from waypost.model.health import HEALTH_WORDS
from waypost.model.names import slug
from waypost.model.query import Evidence, MatchedAgent
from waypost.model.record import AgentRecord, protocols_of
from waypost.model.registration import Registration
from waypost.model.verdict import BADGES, TrustSummary, Verdict
from waypost.server.web.markup import Html, HtmlContent, el, escape_text, join, meter, time_element

_MARKS = {"passed": "✓", "failed": "✕", "unknown": "?", "not_checked": "–"}

_STATES = {"passed": "passed", "failed": "failed", "unknown": "not known", "not_checked": "not checked"}

_LEVEL_TEXTS = {
    "verified": "A check that binds this record to its agent passed.",
    "self_asserted": "Everything here is claimed by the publisher; nothing binds it to the agent yet.",
    "failed": "A check failed. Do not rely on this record.",
}
# The levels of the trust ladder, lowest first, with what each one proves. Other checks are shown in between.
CHECK_LABELS: dict[str, tuple[str, str]] = {
    "announce-signature": ("Announcement signed", "The announcement was signed with the key that it contains."),
    "key-pinned": ("Key pinned", "The signing key is the one bound to this agent here."),
    "profile-signature": ("Record signed", "A key bound to the agent signed the whole record."),
    "a2a-signature": ("Card signed", "A key bound to the agent signed the A2A card."),
    "ard-manifest": ("Trust manifest", "A key of its publisher signed the manifest of the catalog entry."),
    "adp-key": ("Key stated", "The document contains a key that matches its own fingerprint."),
    "adp-proof": ("Key held", "The author of the document holds that key."),
    "domain": ("Domain proven", "The owner proved control of the domain to this registry."),
    "dns-verified": ("In DNS", "The agent's own domain names it, with the fingerprint of its key."),
    "dane-verified": ("DANE", "The certificate of its server matches signed DNS records."),
    "key-verified": ("Key matches DNS", "The key in the document matches the fingerprint in the DNS."),
    "peer-verified": ("Met", "Signatures were verified in both directions of a conversation."),
}

_EVIDENCE_CHARS = 300  # characters of one value

_CHECKS_ALWAYS_SHOWN = ("dns-verified", "dane-verified", "key-verified", "peer-verified")


def level_badge(level: str) -> Html:
    return el("span", BADGES.get(level, "claimed"), class_=f"badge {level if level in BADGES else 'self_asserted'}")


def trust_badge(trust: TrustSummary, *, source: HtmlContent = None) -> Html:
    """The badge, which opens to its evidence."""
    checks = [_check_line(each) for each in trust.checks or ()]
    body = el(
        "div",
        el("p", _LEVEL_TEXTS.get(trust.level, "")),
        el("ul", checks, class_="checks") if checks else None,
        el("p", source, class_="soft") if source else None,
        class_="pop",
    )
    return el("details", el("summary", level_badge(trust.level)), body, class_="trust")


def _check_line(check: Verdict) -> Html:
    name = CHECK_LABELS.get(check.check, (check.check, ""))[0]
    rows = [join((el("dt", word), el("dd", value))) for word, value in _flatten_evidence(check.evidence)]
    return el(
        "li",
        _mark(check.state),
        " ",
        name,
        el("span", f" {check.reason}", class_="soft") if check.reason else None,
        el("dl", rows, class_="evidence") if rows else None,
    )


def _mark(state: str) -> Html:
    """An icon with a text for screen readers."""
    return el(
        "span",
        el("span", _MARKS[state], aria_hidden="true"),
        el("span", f"{_STATES[state]}:", class_="visually-hidden"),
        class_=f"mark {state}",
    )


def trust_checklist(trust: TrustSummary) -> Html:
    """All levels, including those not checked: 'not checked' must not look like 'failed'."""
    made: dict[str, Verdict] = {check.check: check for check in trust.checks or ()}
    known = [
        made.get(name) or Verdict(check=name, state="not_checked")
        for name in CHECK_LABELS
        if name in made or name in _CHECKS_ALWAYS_SHOWN
    ]
    other = [check for name, check in made.items() if name not in CHECK_LABELS]
    return el("ol", [_checklist_item(check) for check in (*other, *known)], class_="ladder")


def _checklist_item(check: Verdict) -> Html:
    title, proves = CHECK_LABELS.get(check.check, (check.check, ""))
    state = check.state
    return el(
        "li",
        _mark(state),
        el(
            "div",
            el("h3", title, " ", el("code", check.check), el("span", f" {_STATES[state]}", class_="soft")),
            el("p", proves) if proves else None,
            el("p", check.reason, class_="soft") if check.reason else None,
            _evidence(check),
        ),
        class_=state,
    )


def _evidence(check: Verdict) -> HtmlContent:
    rows = list(_flatten_evidence(check.evidence))
    if check.at:
        rows.append(("checked", time_element(check.at)))
    if not rows:
        return None
    listed = el("dl", [join((el("dt", name), el("dd", value))) for name, value in rows], class_="evidence")
    return el("details", el("summary", "Evidence"), listed)


def _flatten_evidence(evidence: dict[str, Any]) -> Iterable[tuple[str, HtmlContent]]:
    for name, value in evidence.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield name, el("code", text if len(text) <= _EVIDENCE_CHARS else f"{text[:_EVIDENCE_CHARS]}…")


_DESCRIPTION_CHARS = 320

_MAX_TAGS = 8

_LINE_ENDS = re.compile(r"[\r\n\t]+")

_FLAGS = {
    "suspicious_text": "its text tries to instruct the reader",
    "hidden_text": "it contains hidden text",
    "confusable_name": "its name resembles that of a verified agent",
}


def agent_path(agent_id: str) -> str:
    return f"/a/{slug(agent_id)}"


class AgentCards:
    """`trust_of` returns the verdict on an agent."""

    def __init__(self, trust_of: Callable[[Registration], TrustSummary]) -> None:
        self._trust_of = trust_of
        self._kept: LruCache[str, tuple[tuple[int, str, float], Html]] = LruCache(limits.PAGE_CARD_CACHE)

    def card(self, registration: Registration) -> Html:
        return el("li", self._body(registration), class_="agent")

    def hit(self, candidate: MatchedAgent, registration: Registration) -> Html:
        return el("li", self._body(registration), _match_reasons(candidate), class_="agent hit")

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
        shown = shorten(record.description, _DESCRIPTION_CHARS)
        return join(
            (
                head,
                el("p", shown, class_="publisher-text") if shown else None,
                el("p", _labels(record), class_="labels"),
                el("p", el("code", record.id), el("span", source_line(registration), class_="via"), class_="fine"),
            )
        )


def shorten(text: str, most: int) -> str:
    """The description, shortened to one line."""
    text = _LINE_ENDS.sub(" ", text)
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + "…"


def _labels(record: AgentRecord) -> HtmlContent:
    spoken = [el("span", name, class_="protocol") for name in protocols_of(record) if "+" not in name]
    tags = [el("span", tag, class_="tag") for tag in record.tags[:_MAX_TAGS]]
    more = len(record.tags) - _MAX_TAGS
    return (
        join([join((each, " ")) for each in (*spoken, *tags)]),
        el("span", f"+{more}", class_="soft") if more > 0 else None,
    )


def liveness(registration: Registration) -> Html:
    """Status, health and lease, as far as the registry knows."""
    status, health = registration.status, registration.health
    ends = registration.expires_at
    answers: HtmlContent = None
    if health is not None:
        answers = (f" · {HEALTH_WORDS.get(health.state, health.state)} since ", time_element(health.since))
    lease: HtmlContent = (" · expires ", time_element(ends)) if ends is not None else None
    word = f"live {status}" if health is None else f"live {status} {health.state}"
    return el("span", el("span", status, class_="word"), answers, lease, class_=word)


def source_line(registration: Registration) -> HtmlContent:
    """The dialects of the sources, and how the newest arrived. The sender is not shown."""
    if not registration.sources:
        return "made here"
    newest = registration.sources[0]
    dialects = ", ".join(dict.fromkeys(source.dialect for source in registration.sources))
    return (f"{dialects} by {newest.via}, ", time_element(newest.received_at))


# --- Reasons of a match ----------------------------------------------------------------------------


def _match_reasons(candidate: MatchedAgent) -> Html:
    evidence = candidate.evidence
    return el(
        "div",
        el(
            "p",
            el("span", candidate.match, class_=f"match {candidate.match}"),
            el("span", " provisional", class_="soft") if candidate.is_provisional else None,
            class_="score",
        ),
        el("p", candidate.reason, class_="reason"),
        _reasons(candidate.score, evidence) if evidence is not None else None,
        class_="why",
    )


def _reasons(score: float, evidence: Evidence) -> Html:
    return el(
        "details",
        el("summary", "Why"),
        el("div", el("p", f"Score {score:.2f}"), _bars(evidence), _evidence_text(evidence), class_="pop"),
        class_="reasons",
    )


def _bars(evidence: Evidence) -> Html:
    """Each component of the score. Built as one string, because a page contains hundreds."""
    components = evidence.components.items()
    bars = [f"<dt>{escape_text(name)} {value:.2f}</dt><dd>{meter(value, name)}</dd>" for name, value in components]
    return Html(f'<dl class="bars">{"".join(bars)}</dl>')


def _evidence_text(evidence: Evidence) -> HtmlContent:
    tags = (*evidence.matched_tags, *(f"{tag} (near)" for tag in evidence.expanded_tags))
    return (
        el("p", "Tags: ", [el("span", tag, class_="tag") for tag in tags]) if tags else None,
        [el("blockquote", snippet) for snippet in evidence.snippets],
        [el("blockquote", "Example: ", example.text) for example in evidence.matched_examples[:2]],
        [el("p", "Beware: ", _FLAGS.get(flag, flag), class_="beware") for flag in evidence.flags],
    )

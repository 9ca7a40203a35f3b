"""Match words: `strong`, `possible` or `weak`, from the score of a candidate and the thresholds of a catalogue.

A score is absolute, but its level differs between catalogues: in one whose agents resemble each other, wrong agents score
higher. So the thresholds come from the catalogue itself. A fixed sample of its agents gives background questions (an example,
or the name and the description). For each of them the best score of any *other* agent is the score of a wrong answer:

    strong    above the QUANTILE_STRONG quantile of these scores
    possible  above the QUANTILE_POSSIBLE quantile

Thresholds of a small sample are drawn towards the defaults, and all stay within fixed bounds, so that a catalogue of copies
or of a single agent cannot make everything strong, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from waypost.model.names import fold, fold_tag
from waypost.model.query import Match
from waypost.model.record import AgentRecord
from waypost.search.text.analyzer import split_words

QUANTILE_STRONG: Final = 0.75
QUANTILE_POSSIBLE: Final = 0.25
BACKGROUND_QUESTIONS: Final = 48  # sampled agents: quantiles are within about 0.1 of those of all agents
MIN_BACKGROUND: Final = 12  # with fewer, the defaults are used alone
_PRIOR_QUESTIONS: Final = 12.0  # the weight of the defaults, as a number of questions
_QUESTION_CHARS: Final = 200

ExactField = Literal["id", "name", "tag"]


class MatchThresholds(NamedTuple):
    """The lowest scores of a strong and of a possible match."""

    strong: float
    possible: float


DEFAULT_THRESHOLDS: Final = MatchThresholds(strong=0.5, possible=0.1)
_LOWEST: Final = MatchThresholds(strong=0.3, possible=0.03)
_HIGHEST: Final = MatchThresholds(strong=0.9, possible=0.5)


def calibrate_thresholds(background: Sequence[float]) -> MatchThresholds:
    """The thresholds of a catalogue, from the best wrong score of each background question."""
    if len(background) < MIN_BACKGROUND:
        return DEFAULT_THRESHOLDS
    ordered = sorted(background)
    own = MatchThresholds(quantile(ordered, QUANTILE_STRONG), quantile(ordered, QUANTILE_POSSIBLE))
    share = len(ordered) / (len(ordered) + _PRIOR_QUESTIONS)
    blended = (share * each + (1 - share) * default for each, default in zip(own, DEFAULT_THRESHOLDS, strict=True))
    bounded = (min(max(each, low), high) for each, low, high in zip(blended, _LOWEST, _HIGHEST, strict=True))
    return MatchThresholds(*(round(each, 4) for each in bounded))


def quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile of sorted values, interpolated between neighbours."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def background_question(record: AgentRecord) -> str:
    """A task that this agent does, in its publisher's words: the first public example, else name and description."""
    shown = [example.text for example in record.examples if not example.extra.get("private")]
    return (shown[0] if shown else f"{record.name} {record.description}")[:_QUESTION_CHARS]


def match_of(score: float, thresholds: MatchThresholds, exact: ExactField | None = None) -> Match:
    """The word for a score. An exact name or id is strong, an exact tag at least possible."""
    if exact in ("id", "name") or score >= thresholds.strong:
        return "strong"
    return "possible" if exact is not None or score >= thresholds.possible else "weak"


def find_exact_field(text: str, record: AgentRecord, aliases: Sequence[str] = ()) -> ExactField | None:
    """The field of a record that the whole query text names: its id or an alias, its name, or one of its tags."""
    typed = fold(text.strip())
    if not typed:
        return None
    if any(typed == fold(each) for each in (record.id, *aliases)):
        return "id"
    letters = _letters(typed)
    if _is_same(typed, letters, record.name):
        return "name"
    if any(_is_same(typed.lstrip(":"), letters, tag) for tag in record.tags):
        return "tag"
    short = record.id.replace(":", "/").rstrip("/").rpartition("/")[2]
    return "id" if _is_same(typed, letters, short) else None


def _is_same(typed: str, letters: str, value: str) -> bool:
    return typed == fold_tag(value) or (len(letters) > 1 and letters == _letters(fold(value)))


def _letters(folded: str) -> str:
    """Without separators: `invoice-translator` is `Invoice Translator`."""
    return "".join(split_words(folded))

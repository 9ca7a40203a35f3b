"""Match words: `strong`, `possible` or `weak`, from the score of a candidate and the thresholds of a catalogue.

A score is absolute, but its level differs between catalogues: the more agents there are, and the more they resemble each
other, the higher wrong agents score. So the thresholds come from the catalogue itself. The background questions below are of
everyday life, and no agent is made for them: the best score of each is the score of a wrong answer, and the median of these
scores is the background of the catalogue.

    threshold = logistic(SLOPE · logit(background) + OFFSET)

SLOPE and the two offsets were chosen on nine labelled sets, leaving out one at a time (docs/reference/matches.md). In a small
catalogue, a few agents say little about the level: its background is drawn towards a default.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from statistics import median
from typing import Final, Literal, NamedTuple

from waypost.model.names import fold, fold_tag
from waypost.model.query import Match
from waypost.model.record import AgentRecord
from waypost.search.text.analyzer import is_foreign, split_words

BACKGROUND_QUESTIONS: Final = (
    "why does my grandmother's soup taste like the sea",
    "teach my cat to whistle a waltz",
    "how long does paint take to dry on a wooden boat",
    "which shoes should i wear to my cousin's wedding",
    "what did the neighbours shout about last night",
    "is it rude to leave a dinner before dessert",
    "how do i get candle wax out of a carpet",
    "who left the garden gate open",
    "tell my brother that i am sorry about the bicycle",
    "what is the smell of rain on warm stone called",
    "why do old stairs creak at night",
    "how many marbles fit into a teapot",
    "find the sock that i lost in the laundry",
    "does the moon look bigger from a mountain",
    "how do i fold a napkin into a swan",
    "what should i name my new goldfish",
    "my umbrella turns inside out in the wind",
    "can a snail climb over a razor blade",
    "when do storks come back to the village",
    "how do you polish a brass door handle",
    "the baker forgot to put salt into the bread",
    "why is the queue at the ferry always so long",
    "how do i stop a tap from dripping",
    "which tree should i plant beside the well",
)
DEFAULT_BACKGROUND: Final = 0.17
SLOPE: Final = 1.0
STRONG_OFFSET: Final = 1.05
POSSIBLE_OFFSET: Final = 0.7
FOREIGN_OFFSET: Final = -0.3  # of both thresholds, for a query in another language: its words match in no English agent
_PRIOR_AGENTS: Final = 50.0  # the weight of the default background, as a number of agents
_BOUNDS: Final = (0.05, 0.4)  # of a background: a catalogue of jokers must not make every other match weak

ExactField = Literal["id", "name", "tag"]


class MatchThresholds(NamedTuple):
    """The lowest scores of a strong and of a possible match."""

    strong: float
    possible: float

    def for_query(self, text: str) -> MatchThresholds:
        """Those for a query. The background questions are English: scores of other languages are lower, right or wrong."""
        if not is_foreign(text):
            return self
        return MatchThresholds(*(round(_logistic(_logit(each) + FOREIGN_OFFSET), 4) for each in self))


def thresholds_of(background: float) -> MatchThresholds:
    level = SLOPE * _logit(min(max(background, _BOUNDS[0]), _BOUNDS[1]))
    return MatchThresholds(round(_logistic(level + STRONG_OFFSET), 4), round(_logistic(level + POSSIBLE_OFFSET), 4))


def calibrate_thresholds(best_scores: Sequence[float], agents: int) -> MatchThresholds:
    """The thresholds of a catalogue with this number of agents, from the best score of each background question."""
    if not best_scores:
        return DEFAULT_THRESHOLDS
    measured = min(max(median(best_scores), _BOUNDS[0]), _BOUNDS[1])
    share = agents / (agents + _PRIOR_AGENTS)
    return thresholds_of(_logistic(share * _logit(measured) + (1 - share) * _logit(DEFAULT_BACKGROUND)))


def _logit(share: float) -> float:
    return log(share / (1.0 - share))


def _logistic(odds: float) -> float:
    return 1.0 / (1.0 + exp(-odds))


DEFAULT_THRESHOLDS: Final = thresholds_of(DEFAULT_BACKGROUND)


def match_of(score: float, thresholds: MatchThresholds, exact: ExactField | None = None) -> Match:
    """The word for a score. An exact name or id is strong, an exact tag at least possible."""
    if exact in ("id", "name") or score >= thresholds.strong:
        return "strong"
    return "possible" if exact is not None or score >= thresholds.possible else "weak"


class ExactMatcher:
    """Compares the whole text of a query with the names of agents. Made once for each query."""

    def __init__(self, text: str) -> None:
        self._typed = fold(text.strip())
        self._letters = _letters(self._typed)

    def find_field(self, record: AgentRecord, aliases: Sequence[str] = ()) -> ExactField | None:
        """The field of a record that the text names: its id or an alias, its name, or one of its tags."""
        if not self._typed:
            return None
        if any(self._typed == fold(each) for each in (record.id, *aliases)):
            return "id"
        if self._is_same(record.name):
            return "name"
        if any(map(self._is_same, record.tags)):
            return "tag"
        short = record.id.replace(":", "/").rstrip("/").rpartition("/")[2]
        return "id" if self._is_same(short) else None

    def _is_same(self, value: str) -> bool:
        if not len(self._letters) <= len(value) <= 2 * len(self._typed) + 1:
            return False  # as most: no other spelling of the text is so short or so long
        folded = fold_tag(value)
        return folded == self._typed.lstrip(":") or (len(self._letters) > 1 and self._letters == _letters(folded))


def _letters(folded: str) -> str:
    """Without separators: `invoice-translator` is `Invoice Translator`."""
    return "".join(split_words(folded))

"""Agents without end, made of real MCP servers: as many as are asked for, one after the other, the same every time.

An agent takes phrases from the descriptions of real servers that stand near each other (the set is ordered by subject), so
that it has one subject. Its description and each of its three examples have up to 500 characters, as people write them who
want to be found. Tags are drawn by how often they occur. Words that only one real server uses are slots: a slot is filled
with a new name by the law of Zipf and Mandelbrot, so that the vocabulary goes on growing with the corpus as that of real text
does (Heaps). bench/search/corpus_statistics.py measures how like the real set it is.
"""

from __future__ import annotations

import random
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate

import msgspec

from bench.sets import ORIGIN, public_set, real_servers, registered
from waypost.model.record import AgentRecord, Binding, Example
from waypost.model.registration import Registration

EXAMPLES = 3
DESCRIPTION_CHARS = (60, 500)  # from, to: the length of each is drawn evenly
EXAMPLE_CHARS = (40, 500)
_NEAR = 25  # how far along the sets a subject reaches
_FRESH = 0.9  # of the slots that get a new word; the others keep a real one
_FLAT = 60_000  # of the law of Zipf and Mandelbrot: so many words share its head
_TAIL = 0.6  # its exponent less one
_MOST_WORDS = 40_000_000
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]+")
_CUT = re.compile(r"[.;:!?()\n,]+\s*|\s+(?=(?:and|with|for|using|via|that|from|through|in|on)\s)")
_SYLLABLES = tuple(consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in "aeiou")
_ENDINGS = (
    "base bit byte cast core desk dex dock flow forge gate grid hub kit lab lane leaf link loop mark mesh mind nest node pad "
    "path pilot port pulse scope sense spark stack sync tide vault wave wise yard"
)
_ENDS = tuple(_ENDINGS.split())  # none ends in another, so that a word has one rank

Template = tuple[str, ...]  # the pieces around the slots: one slot between two pieces


class Material:
    """Phrases, names and tags of the real servers, by their place in the set; and how people begin a question."""

    def __init__(self) -> None:
        real = real_servers()
        self.rare = _rare(real)
        self.phrases = [self._templates(agent.record.description) for agent in real]
        self.names = [_WORD.findall(_apart(agent.record.name)) or ["Agent"] for agent in real]
        self.tags = [agent.record.tags for agent in real]
        asked = [each.text for name in ("metatool", "sealtools") for each in public_set(name).questions]
        self.openers = _weighed(Counter(" ".join(text.split()[:3]) for text in asked if len(text.split()) > 6))
        self.common_tags = _weighed(Counter(tag for tags in self.tags for tag in tags))
        self.rare_words = sorted(self.rare)

    def _templates(self, text: str) -> tuple[Template, ...]:
        return tuple(self._template(phrase) for phrase in _CUT.split(text) if phrase and phrase.strip())

    def _template(self, text: str) -> Template:
        pieces, start = [], 0
        for found in _WORD.finditer(text):
            if found[0].lower() in self.rare:
                pieces.append(text[start : found.start()])
                start = found.end()
        return (*pieces, text[start:])


Weighed = tuple[list[str], list[int]]


def _weighed(counted: Counter[str]) -> Weighed:
    common = counted.most_common()
    return [word for word, _ in common], [*accumulate(count for _, count in common)]


def _drawn(weighed: Weighed, dice: random.Random) -> str:
    words, sums = weighed
    return words[bisect(sums, dice.random() * sums[-1])]


def _apart(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_-]", " ", name)


def _rare(agents: Sequence[Registration]) -> frozenset[str]:
    counted: Counter[str] = Counter()
    for agent in agents:
        counted.update({word.lower() for word in _WORD.findall(agent.record.description)})
    return frozenset(word for word, count in counted.items() if count == 1)


@cache
def material() -> Material:
    return Material()


def new_word(rank: int) -> str:
    """The made-up word of this rank: deterministic and unique."""
    rank, end = divmod(rank, len(_ENDS))
    rank, last = divmod(rank, len(_SYLLABLES))
    word = _SYLLABLES[last] + _ENDS[end]
    while rank:
        rank, before = divmod(rank - 1, len(_SYLLABLES))
        word = _SYLLABLES[before] + word
    return word


def _rank(dice: random.Random) -> int:
    return min(_MOST_WORDS, int(_FLAT * ((1.0 - dice.random()) ** (-1 / _TAIL) - 1.0)))


def agents(count: int, *, seed: int = 7, first: int = 0) -> Iterator[Registration]:
    """Generate the agents `first` to `first + count`."""
    source = material()
    for number in range(first, first + count):
        yield _agent(source, number, random.Random((seed << 40) | number))


def unmistakable(count: int, first: int) -> Iterator[Registration]:
    """Agents with unique names, so that a query with one has one right answer."""
    for agent in agents(count, first=first):
        name = new_word(_MOST_WORDS + int(agent.id.rsplit("/", 1)[1]))
        yield msgspec.structs.replace(agent, record=msgspec.structs.replace(agent.record, name=name))


def _agent(source: Material, number: int, dice: random.Random) -> Registration:
    centre = dice.randrange(len(source.phrases))
    name = _name(source, centre, dice)
    chosen = f"{ORIGIN}/made/{number}"
    record = AgentRecord(
        id=chosen,
        name=name[:128],
        description=_text(source, centre, dice, dice.randint(*DESCRIPTION_CHARS)) or name,
        tags=_tags(source, centre, dice),
        examples=tuple(Example(text=_example(source, centre, dice)) for _ in range(EXAMPLES)),
        bindings=(Binding(protocol="https", endpoint=f"{chosen}/invoke"),),
    )
    return registered(record, f"owner-{number % 50_021}")


def _near(source: Material, centre: int, dice: random.Random) -> int:
    return (centre + int(dice.gauss(0, _NEAR))) % len(source.phrases)


def _name(source: Material, centre: int, dice: random.Random) -> str:
    own = source.names[_near(source, centre, dice)]
    other = source.names[_near(source, centre, dice)]
    words = [*own[: dice.randint(1, 2)], *other[len(other) - dice.randint(0, 1) :]]
    if dice.random() < 0.4:
        words.insert(0, new_word(_rank(dice)).capitalize())
    return " ".join(dict.fromkeys(words))


def _text(source: Material, centre: int, dice: random.Random, chars: int) -> str:
    """Runs of phrases of neighbours, as many as fit."""
    text = ""
    while len(text) < chars:
        text = f"{text} {_run(source, centre, dice)}".strip()
    return text if len(text) <= chars else text[:chars].rpartition(" ")[0]


def _run(source: Material, centre: int, dice: random.Random) -> str:
    """Up to three phrases that follow each other in one description."""
    phrases = source.phrases[_near(source, centre, dice)]
    start = int(dice.random() * len(phrases))
    return " ".join(_filled(source, each, dice) for each in phrases[start : start + dice.randint(1, 3)])


def _filled(source: Material, template: Template, dice: random.Random) -> str:
    if len(template) == 1:
        return template[0]
    parts = [template[0]]
    for piece in template[1:]:
        is_fresh = dice.random() < _FRESH
        parts.append(
            new_word(_rank(dice)) if is_fresh else source.rare_words[int(dice.random() * len(source.rare_words))]
        )
        parts.append(piece)
    return "".join(parts)


def _tags(source: Material, centre: int, dice: random.Random) -> tuple[str, ...]:
    own = source.tags[_near(source, centre, dice)][:4]
    return tuple(dict.fromkeys((*own, *(_drawn(source.common_tags, dice) for _ in range(dice.randint(0, 1))))))


def _example(source: Material, centre: int, dice: random.Random) -> str:
    """The opening of a question and phrases of the subject."""
    return f"{_drawn(source.openers, dice)} {_text(source, centre, dice, dice.randint(*EXAMPLE_CHARS))}"[
        : EXAMPLE_CHARS[1]
    ]

"""Spam made from honest agents: clones, stuffed tags, repeated words, invisible text."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from bench.sets import Question, agent_id, registered
from waypost.model.record import AgentRecord
from waypost.model.registration import Registration

TAGS_ADDED = 31
_WORD = re.compile(r"[a-z]{4,}")
_FILLERS = ("now", "today", "quickly", "simply", "easily", "for everyone", "at once", "in one step")
_COMMON = (
    "about also been could does from give have help into like make need please some that their them there they this what "
    "when where which will with would your find want know just more"
)
_EMPTY = frozenset(_COMMON.split())
_ZERO_WIDTH = "\u200b"


def popular_words(questions: Iterable[Question], count: int) -> list[str]:
    """The most frequent words of queries: those that a spammer would target."""
    counted = Counter(word for each in questions for word in set(_WORD.findall(each.text.lower())) - _EMPTY)
    return [word for word, _ in counted.most_common(count)]


def copies(target: Registration, count: int) -> list[Registration]:
    """The same record under other owners and ids; half of the ids sort before the target's, all are newer."""
    return [_clone(target, at, target.record) for at in range(count)]


def variants(target: Registration, count: int, seed: int = 11) -> list[Registration]:
    """The same record with small edits: a flood that tries to evade duplicate detection."""
    return [_clone(target, at, _reworded(target.record, at, random.Random(seed + at))) for at in range(count)]


def _clone(target: Registration, at: int, record: AgentRecord) -> Registration:
    chosen = agent_id("aaa-clones" if at % 2 else "zzz-clones", f"{at}-{target.id.rsplit('/', 1)[1]}")
    return registered(msgspec.structs.replace(record, id=chosen), f"cloner-{at}", created_at=1000.0 + at)


def _reworded(record: AgentRecord, at: int, dice: random.Random) -> AgentRecord:
    examples = list(record.examples)
    dice.shuffle(examples)
    return msgspec.structs.replace(
        record,
        name=f"{record.name} {at}",
        description=f"{_with_filler(record.description, dice)} {dice.choice(_FILLERS)}",
        examples=tuple(
            msgspec.structs.replace(each, text=_with_filler(each.text, dice)) for each in examples[: dice.randint(3, 9)]
        ),
    )


def _with_filler(text: str, dice: random.Random) -> str:
    words = text.split()
    words.insert(dice.randint(0, len(words)), dice.choice(_FILLERS))
    return " ".join(words)


def with_tags(agent: Registration, tags: Iterable[str]) -> Registration:
    return _changed(agent, tags=(*agent.record.tags, *tags)[:32])


def saying(agent: Registration, words: Iterable[str]) -> Registration:
    """The words once, in plain text: the reference for every form of repetition."""
    return _changed(agent, description=f"{agent.record.description} Also {', '.join(words)}.")


def repeating(agent: Registration, words: Iterable[str], times: int = 20) -> Registration:
    return _changed(agent, description=f"{agent.record.description} Also {', '.join([*words] * times)}."[:4000])


def repeating_in_examples(agent: Registration, words: Iterable[str]) -> Registration:
    text = " ".join(words)
    own = agent.record.examples
    louder = tuple(msgspec.structs.replace(each, text=f"{text} {each.text} {text}") for each in own)
    return _changed(agent, examples=louder)


def hiding(agent: Registration, words: Iterable[str]) -> Registration:
    """Words in invisible places: a comment, a hidden element."""
    listed = " ".join(words)
    hidden = f"<!-- {listed} --><span style='display:none'>{listed}</span>"
    return _changed(agent, description=f"{agent.record.description} {hidden}")


def listing(agent: Registration, words: Iterable[str]) -> Registration:
    """The words once, in a plain list: the reference for a disguised list."""
    return _changed(agent, description=f"{agent.record.description} {' '.join(words)}")


def disguising(agent: Registration, words: Iterable[str]) -> Registration:
    """The same list with zero-width characters between the letters: a reader sees the words, a filter may not."""
    return _changed(agent, description=f"{agent.record.description} {_ZERO_WIDTH}{_ZERO_WIDTH.join(' '.join(words))}")


def _changed(agent: Registration, **changes: object) -> Registration:
    return msgspec.structs.replace(agent, record=msgspec.structs.replace(agent.record, **changes))

"""Questions as people write them: with a typo, a polite opening, several wishes, a name that is ruled out, or one tag.

Each row changes the questions of the nine sets by a fixed seed, so that a loss is against the same questions unchanged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.corpus import documents
from bench.measures import auc, mean
from bench.quality.retrieval import Figures, Task, ask, tasks
from bench.searchers import InProcess, MakeRanker, Searcher
from bench.sets import Question, made, public_set, questions_without_agent, sampled
from waypost.model.query import Hit

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LONG_WORD = re.compile(r"[A-Za-z]{5,}")
_ONE_WORD = re.compile(r"[a-z]{3,}")
_OPENINGS = (
    "Hi there! Could you please help me with this: ",
    "Hello, I hope you are doing well. I was wondering whether you could help. ",
    "Hey, quick question if you don't mind: ",
    "Good morning, I would really appreciate some assistance. ",
)
_JOINTS = (" Also, ", " After that, ", " And then: ")
_CATALOGUE = 2000  # made agents with tags
_TAGS = 300
_MOST_TAGGED = 100  # agents; more common tags say little


def with_typo(question: Question, seed: int) -> Question:
    """One edit in one word of five letters or more: two letters swapped, one left out, one added or one replaced."""
    dice = random.Random(seed)
    words = list(_LONG_WORD.finditer(question.text))
    if not words:
        return question
    found = dice.choice(words)
    word, at, letter = found.group(), dice.randrange(1, len(found.group()) - 1), dice.choice(_LETTERS)
    edits = (
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        word[:at] + word[at + 1 :],
        word[:at] + letter + word[at:],
        word[:at] + letter + word[at + 1 :],
    )
    text = question.text[: found.start()] + dice.choice(edits) + question.text[found.end() :]
    return replace(question, text=text)


def with_opening(question: Question, seed: int) -> Question:
    return replace(question, text=_OPENINGS[seed % len(_OPENINGS)] + question.text)


def losses(make: MakeRanker, count: int) -> dict[str, Figures]:
    """For each kind of change the mean over the sets, and what it costs."""
    plain: dict[str, float] = {}
    changed: dict[str, list[float]] = {}
    for task in tasks(count):
        searcher = InProcess(make)
        searcher.fill(task.agents)
        plain[task.name] = mean(ask(searcher, task.questions))
        for name, questions in _changed(searcher, task).items():
            changed.setdefault(name, []).append(mean(ask(searcher, questions)))
        searcher.close()
    before = mean(plain.values())
    return {
        name: {"ndcg10": round(mean(figures), 2), "lost": round(before - mean(figures), 2)}
        for name, figures in changed.items()
    }


def _changed(searcher: Searcher, task: Task) -> dict[str, list[Question]]:
    return {
        "one typo": [with_typo(each, at) for at, each in enumerate(task.questions)],
        "polite opening": [with_opening(each, at) for at, each in enumerate(task.questions)],
        "a rival ruled out": [_ruling_out_rival(searcher, task, each) for each in task.questions],
    }


def _ruling_out_rival(searcher: Searcher, task: Task, question: Question) -> Question:
    """Name the best wrong agent and rule it out: its name must not lift it."""
    names = {agent.id: agent.record.name for agent in task.agents}
    rival = next((hit.id for hit in searcher.find(question.text, 10) if hit.id not in question.relevant), None)
    if rival is None:
        return question
    return replace(question, text=f"{question.text.rstrip(' .?!')}, but not with {names[rival]}")


def long_questions(make_searchers: dict[str, Callable[[], Searcher]], count: int) -> dict[str, Figures]:
    """Two or three questions of a set in one: the agents of all of them are wanted."""
    figures: dict[str, Figures] = {}
    for name, make in make_searchers.items():
        found: list[float] = []
        for task in tasks(count):
            searcher = make()
            searcher.fill(task.agents)
            found.append(mean(ask(searcher, _joined(task.questions))))
            searcher.close()
        figures[name] = {"ndcg10": round(mean(found), 2)}
    return figures


def _joined(questions: Sequence[Question]) -> list[Question]:
    dice = random.Random(4)
    joined = []
    for at in range(0, len(questions) - 2, 3):
        some = list(questions[at : at + dice.choice((2, 3))])
        text = some[0].text + "".join(dice.choice(_JOINTS) + each.text for each in some[1:])
        joined.append(Question(text, frozenset[str]().union(*(each.relevant for each in some))))
    return joined


def one_word_tags(make: MakeRanker) -> Figures:
    """The question is one tag: is an agent with this tag first, and how high is its score?"""
    agents = [*map(made, documents(_CATALOGUE)), *public_set("livemcp_server").agents]
    tagged: dict[str, set[str]] = {}
    for agent in agents:
        for tag in agent.record.tags:
            tagged.setdefault(tag.casefold(), set()).add(agent.id)
    tags = sorted(tag for tag, ids in tagged.items() if _ONE_WORD.fullmatch(tag) and len(ids) <= _MOST_TAGGED)
    asked = random.Random(6).sample(tags, min(_TAGS, len(tags)))
    searcher = InProcess(make)
    searcher.fill(agents)
    tops: list[tuple[bool, float]] = []
    for tag in asked:
        hits = searcher.find(tag, 1)
        tops.append((bool(hits) and hits[0].id in tagged[tag], hits[0].score if hits else 0.0))
    searcher.close()
    return {
        "tagged_first": round(100 * mean(float(is_first) for is_first, _ in tops), 1),
        "lowest_score": round(min(score for _, score in tops), 3),
    }


def no_agent_fits(make: Callable[[], Searcher], count: int) -> Figures:
    """AUROC of the best score: questions of clinc150 with an agent against questions without one."""
    held = public_set("clinc150")
    searcher = make()
    searcher.fill(held.agents)
    good = [_top(searcher.find(each.text, 1)) for each in sampled(held.questions, count)]
    none = [_top(searcher.find(text, 1)) for text in questions_without_agent()]
    searcher.close()
    return {"auroc": round(100 * auc(good, none), 1)}


def _top(hits: Sequence[Hit]) -> float:
    return hits[0].score if hits else 0.0

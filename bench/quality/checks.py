"""What a good mean can hide: other languages, floods of clones, agents with many skills, unanswerable queries, spam.

Each check takes a way to make a ranker and gives back figures. Shares are per cent; `raised` counts questions (lower is better).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import msgspec

from bench.corpus import documents
from bench.measures import auc, mean, ndcg, reciprocal_rank
from bench.quality import attacks
from bench.quality.retrieval import tasks
from bench.searchers import InProcess, MakeRanker, OverHttp, settle
from bench.sets import (
    DATA,
    Question,
    agent_id,
    haystack,
    made,
    public_set,
    registration,
    rows,
    sampled,
    translated_questions,
)
from waypost.model.query import Hit, Query
from waypost.model.registration import Registration
from waypost.search.evidence import explain
from waypost.search.index.document import prepare_documents

Figures = dict[str, float]
_DEEP = 100  # as far as a question may look
_HELD_OUT_QUERIES = 50
_REPEATED = 10  # words that a cheat shouts


def loaded(make: MakeRanker, agents: Iterable[Registration]) -> InProcess:
    searcher = InProcess(make)
    searcher.fill(agents)
    return searcher


def share(flags: Iterable[bool]) -> float:
    return round(100 * mean(map(float, flags)), 1)


# --- Languages ------------------------------------------------------------------------------------


def languages(make: MakeRanker) -> dict[str, Figures]:
    """Queries in Chinese, Spanish, German and Japanese for English agents; English queries for agents in those languages."""
    foreign = list(rows("languages.corpus.jsonl"))
    searcher = loaded(make, (*public_set("metatool").agents, *(registration("foreign", row) for row in foreign)))
    figures: dict[str, Figures] = {}
    for language in ("en", "zh", "es", "de", "ja"):
        wanted = [(question.text, set(question.relevant)) for question in translated_questions(language)]
        figures[f"query in {language}"] = _found(searcher, wanted)
    for language in ("zh", "es", "de", "ja"):
        wanted = [
            (text, {agent_id("foreign", row["id"])})
            for row in foreign
            if row["language"] == language
            for text in row["asked"]
        ]
        figures[f"described in {language}"] = _found(searcher, wanted)
    searcher.close()
    return figures


def _found(searcher: InProcess, wanted: Sequence[tuple[str, set[str]]]) -> Figures:
    answers = [([hit.id for hit in searcher.find(text)], relevant) for text, relevant in wanted]
    return {
        "ndcg10": round(100 * mean(ndcg(*answer) for answer in answers), 1),
        "first": share(reciprocal_rank(*answer) == 1 for answer in answers),
    }


# --- Clones ---------------------------------------------------------------------------------------


def clones(make: MakeRanker, *, targets: int = 8, count: int = 200, seed: int = 5) -> dict[str, Figures]:
    """`count` clones of the target, and of its closest rival: does the target stay in the top five?"""
    held = public_set("metatool")
    by_id = {agent.id: agent for agent in held.agents}
    searcher = loaded(make, held.agents)
    figures: dict[str, list[bool]] = {}
    before: list[bool] = []
    for target in random.Random(seed).sample(held.agents, targets):
        texts = [each.text for each in held.questions if target.id in each.relevant]
        reached = [_is_in_top(searcher, text, target.id) for text in texts]
        before += reached
        texts = [text for text, is_there in zip(texts, reached, strict=True) if is_there]
        rival = by_id[_rival(searcher, texts, target.id)] if texts else target
        floods = {
            "copies": attacks.copies(target, count),
            "variants": attacks.variants(target, count),
            "rival": attacks.variants(rival, count),
        }
        for name, flood in floods.items():
            with_flood(searcher, flood)
            figures.setdefault(name, []).extend(_is_in_top(searcher, text, target.id) for text in texts)
            without_flood(searcher, flood)
    searcher.close()
    return {
        "before": {"in_top5": share(before)},
        **{name: {"kept_in_top5": share(kept)} for name, kept in figures.items()},
    }


def _is_in_top(searcher: InProcess, text: str, wanted: str) -> bool:
    return any(hit.id == wanted for hit in searcher.find(text, 5))


def _rival(searcher: InProcess, texts: Sequence[str], target: str) -> str:
    """The agent that ranks best beside the target over its own queries."""
    points: dict[str, float] = {}
    for text in texts:
        for at, hit in enumerate(searcher.find(text, 5), 1):
            points[hit.id] = points.get(hit.id, 0.0) + 1 / at
    points.pop(target, None)
    return max(points, key=lambda each: points[each], default=target)


def with_flood(searcher: InProcess, flood: Iterable[Registration]) -> None:
    for agent in flood:
        searcher.ranker.index.put(agent)
    settle(searcher.ranker)


def without_flood(searcher: InProcess, flood: Iterable[Registration]) -> None:
    for agent in flood:
        searcher.ranker.index.remove(agent.id)
    settle(searcher.ranker)


# --- One agent, eight skills ----------------------------------------------------------------------


def eight_skills(agents: Sequence[Registration]) -> Figures:
    """Over HTTP with evidence: is the agent first for each of its skills, and is the matching example named?"""
    row = _written()["eight_skills"]
    many_sided = registration("checks", {**row, "examples": [example for example, _ in row["skills"]]})
    searcher = OverHttp()
    try:
        searcher.fill((*agents, many_sided))
        answers = [
            (example, searcher.discover(query=asked, limit=5, include_evidence=True))
            for example, asked in row["skills"]
        ]
    finally:
        searcher.close()
    return {
        "first": share(bool(found) and found[0]["id"] == many_sided.id for _, found in answers),
        "example_named": share(_names(found, many_sided.id, example) for example, found in answers),
    }


def many_skills(make: MakeRanker, agents: Sequence[Registration]) -> Figures:
    """Agents with eight unrelated skills each, queried for every skill in other words."""
    held = list(rows("skills.jsonl"))
    planted = [registration("checks", {**row, "examples": [example for example, _ in row["skills"]]}) for row in held]
    searcher = loaded(make, (*agents, *planted))
    asked = [
        (agent, example, searcher.found(text, _DEEP))
        for agent, row in zip(planted, held, strict=True)
        for example, text in row["skills"]
    ]
    searcher.close()
    return {
        "first": share(bool(hits) and hits[0].id == agent.id for agent, _, (_, hits) in asked),
        "in_top5": share(agent.id in [hit.id for hit in hits[:5]] for agent, _, (_, hits) in asked),
        "example_named": share(_tells(agent, example, *found) for agent, example, found in asked),
    }


def _tells(agent: Registration, example: str, query: Query, hits: Sequence[Hit]) -> bool:
    near = [hit.near for hit in hits if hit.id == agent.id]
    told = explain(query, agent.record, near[0]).matched_examples if near else ()
    return bool(told) and told[0].text == example


def _many_skills(make: MakeRanker, *, quick: bool) -> dict[str, Figures]:
    if quick:
        return {"among MetaTool's": many_skills(make, public_set("metatool").agents)}
    real = [agent for agent in haystack() if agent.id.startswith(agent_id("servers", ""))]
    return {
        "among real servers": many_skills(make, real),
        "among 10,000 made agents": many_skills(make, [*map(made, documents(10_000))]),
        "in the haystack": many_skills(make, haystack()),
    }


def _names(found: list[dict[str, Any]], agent: str, example: str) -> bool:
    told = [each["matched_examples"] for each in found if each["id"] == agent]
    return bool(told and told[0]) and told[0][0]["text"] == example


def _written() -> Any:
    return json.loads((DATA / "checks.json").read_text(encoding="utf-8"))


# --- Nobody can do it -----------------------------------------------------------------------------


def no_good_agent(make: MakeRanker, *, questions: int | None = None, seed: int = 3) -> dict[str, Figures]:
    """Do top scores separate queries with a matching agent from queries without one?

    Fields: a third of sealtools' fields is left out; of the questions that need one agent, those that need one of these
    have none (but for what fields share). Errands: questions that no software can run, against the questions of metatool.
    """
    return {"fields left out": _fields_left_out(make, questions, seed), "errands": _errands(make, questions)}


def _fields_left_out(make: MakeRanker, questions: int | None, seed: int) -> Figures:
    held = public_set("sealtools")
    fields = sorted({agent.record.tags[0] for agent in held.agents if agent.record.tags})
    out = set(random.Random(seed).sample(fields, len(fields) // 3))
    left = [agent for agent in held.agents if not out.intersection(agent.record.tags[:1])]
    known = {agent.id for agent in left}
    asked = sampled([each for each in held.questions if len(each.relevant) == 1], questions)
    searcher = loaded(make, left)
    good = [_top(searcher, each.text) for each in asked if each.relevant <= known]
    none = [_top(searcher, each.text) for each in asked if not each.relevant & known]
    searcher.close()
    return _apart(good, none)


def _errands(make: MakeRanker, questions: int | None) -> Figures:
    held = public_set("metatool")
    searcher = loaded(make, held.agents)
    good = [_top(searcher, each.text) for each in sampled(held.questions, questions or 400)]
    none = [_top(searcher, text) for text in _written()["no_agent"]]
    searcher.close()
    return _apart(good, none)


def _top(searcher: InProcess, text: str) -> float:
    hits = searcher.find(text, 1)
    return hits[0].score if hits else 0.0


def _apart(good: list[float], none: list[float]) -> Figures:
    return {
        "auc": round(100 * auc(good, none), 1),
        "median_with": round(median(good), 3),
        "median_without": round(median(none), 3),
    }


# --- Cheats ---------------------------------------------------------------------------------------


def cheats(make: MakeRanker, *, agents: int = 6, seed: int = 2) -> dict[str, Figures]:
    """For how many held-out queries does spam rank higher than the honest agent with the same text?"""
    held = public_set("metatool")
    dice = random.Random(seed)
    searcher = loaded(make, held.agents)
    figures: dict[str, list[int]] = {}
    for agent in dice.sample(held.agents, agents):
        others = [each for each in held.questions if agent.id not in each.relevant]
        asked = dice.sample(others, _HELD_OUT_QUERIES)
        words = attacks.popular_words(asked, attacks.TAGS_ADDED)
        for name, honest, cheating in _attempts(agent, words):
            gains = _gains(searcher, asked, honest, cheating)
            figures.setdefault(name, []).extend(gains)
        searcher.ranker.index.put(agent)
    searcher.close()
    return {
        name: {
            "raised": float(sum(gain > 0 for gain in gains)),
            "of": float(len(gains)),
            "most_places": float(max(gains)),
        }
        for name, gains in figures.items()
    }


def _attempts(agent: Registration, words: list[str]) -> list[tuple[str, Registration, Registration]]:
    said = words[:_REPEATED]
    once = attacks.saying(agent, said)
    return [
        ("31 popular tags", agent, attacks.with_tags(agent, words)),
        ("ten words 3 times", once, attacks.repeating(agent, said, 3)),  # few enough to pass for prose
        ("ten words 20 times", once, attacks.repeating(agent, said)),
        ("ten words in every example", once, attacks.repeating_in_examples(agent, said)),
        ("ten invisible words", agent, attacks.hiding(agent, said)),
        ("ten words with zero-width characters", attacks.listing(agent, said), attacks.disguising(agent, said)),
    ]


def _gains(searcher: InProcess, asked: Sequence[Question], honest: Registration, cheating: Registration) -> list[int]:
    return [
        before - after
        for before, after in zip(_places(searcher, asked, honest), _places(searcher, asked, cheating), strict=True)
    ]


def _places(searcher: InProcess, asked: Sequence[Question], agent: Registration) -> list[int]:
    searcher.ranker.index.put(agent)
    settle(searcher.ranker)
    return [
        next((at for at, hit in enumerate(searcher.find(each.text, _DEEP)) if hit.id == agent.id), _DEEP)
        for each in asked
    ]


# --- What the protection costs --------------------------------------------------------------------

_PROTECTED = 200  # questions of each set


def protection(make: MakeRanker, questions: int = _PROTECTED) -> Figures:
    """The points that the rules against duplicates, floods of one owner and stuffing cost on honest sets: with every agent its
    own owner, and with one owner for all agents of a set; and the share of honest agents that are damped as spam."""
    plain: list[float] = []
    guarded: list[float] = []
    one_owner: list[float] = []
    damped: list[bool] = []
    for task in tasks(questions):
        searcher = loaded(make, task.agents)
        plain.append(mean(ndcg(_ids(searcher, each, diversity=False), each.relevant) for each in task.questions))
        guarded.append(mean(ndcg(_ids(searcher, each), each.relevant) for each in task.questions))
        searcher.close()
        searcher = loaded(make, (msgspec.structs.replace(agent, owner="company") for agent in task.agents))
        one_owner.append(mean(ndcg(_ids(searcher, each), each.relevant) for each in task.questions))
        searcher.close()
        damped += [document.worth < 1 for document in prepare_documents(task.agents, with_texts=False)]
    return {
        "lost": round(100 * (mean(plain) - mean(guarded)), 2),
        "lost_with_one_owner": round(100 * (mean(plain) - mean(one_owner)), 2),
        "damped_percent": share(damped),
    }


def _ids(searcher: InProcess, question: Question, *, diversity: bool = True) -> list[str]:
    query = Query(text=question.text, limit=10, diversity=diversity)
    return [hit.id for hit in searcher.rank(query)]


def all_checks(make: MakeRanker, *, quick: bool = False) -> dict[str, Any]:
    few = 60 if quick else None
    return {
        "languages": languages(make),
        "clones": clones(make, targets=2 if quick else 8, count=20 if quick else 200),
        "eight skills": eight_skills(public_set("metatool").agents if quick else haystack()),
        "many skills": _many_skills(make, quick=quick),
        "no good agent": no_good_agent(make, questions=few),
        "cheats": cheats(make, agents=1 if quick else 6),
        "protection": protection(make, few or _PROTECTED),
    }
